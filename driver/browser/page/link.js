/* SPDX-License-Identifier: Apache-2.0 */
/* A link that holds the file and the settings of its plan: `#z=` and deflated JSON in base64url. */
const MOST_LINK = 60000, MOST_LINKED_TEXT = 1 << 20

function toBase64(bytes) {
  let text = ''
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768))
  return btoa(text)
}
const fromBase64 = text => Uint8Array.from(atob(text), c => c.charCodeAt(0))
const toLink = bytes => toBase64(bytes).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
const fromLink = text => fromBase64(text.replace(/-/g, '+').replace(/_/g, '/'))

/* The bytes that a stream makes of others; more than `most` are an error. */
async function through(stream, bytes, most = Infinity) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader(), pieces = []
  let size = 0
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    size += piece.value.length
    if (size > most) throw new Error(`more than ${most} bytes`)
    pieces.push(piece.value)
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer())
}

async function writeFragment(request) {
  const bytes = new TextEncoder().encode(JSON.stringify(request))
  return '#z=' + toLink(await through(new CompressionStream('deflate-raw'), bytes))
}

/* null: the fragment is none of these. Throws where it is damaged. */
async function readFragment(fragment) {
  if (!fragment.startsWith('#z=')) return null
  const bytes = await through(new DecompressionStream('deflate-raw'), fromLink(fragment.slice(3)), MOST_LINKED_TEXT)
  const request = JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(bytes))
  for (const key of ['file', 'gpus', 'machine', 'options'])
    if (typeof request[key] !== 'string') throw new Error(`no ${key}`)
  return request
}
