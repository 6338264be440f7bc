/* SPDX-License-Identifier: Apache-2.0 */
/* What a WASI program calls, over files in memory: the part of WASI preview 1 that zplan needs. Runs in a worker.
 *
 *   runProgram(module, words, files, variables) -> {status, out, err, seconds, memoryMiB}
 *
 * `files` maps absolute paths to Uint8Arrays and has afterwards what the program left; folders are what paths have before a slash.
 * One program at a time, which ends before runProgram returns. Nothing else of the machine is visible to it besides the clock. */
'use strict'

const ERRNO = {badf: 8, exist: 20, inval: 28, isdir: 31, noent: 44, nosys: 52, notdir: 54, notempty: 55}
const FILE_TYPE = {device: 2, folder: 3, file: 4}
const ROOT_FD = 3
const ALL_RIGHTS = 0x1fffffffn
const MIB = 1048576

class Ended extends Error {
  constructor(status) {
    super(`ended with status ${status}`)
    this.status = status
  }
}

/* A file that grows: `bytes` has room, `size` of them count. */
class Content {
  constructor(bytes = new Uint8Array(0)) {
    this.bytes = bytes
    this.size = bytes.length
  }
  write(at, from) {
    const end = at + from.length
    if (end > this.bytes.length) {
      const larger = new Uint8Array(Math.max(end, 2 * this.bytes.length, 4096))
      larger.set(this.bytes.subarray(0, this.size))
      this.bytes = larger
    }
    this.bytes.set(from, at)
    this.size = Math.max(this.size, end)
  }
  whole() { return this.bytes.slice(0, this.size) }
}

class Files {
  constructor(given) {
    this.contents = new Map()
    this.folders = new Set(['/'])
    for (const [path, bytes] of given) this.add(path, new Content(bytes))
  }
  add(path, content) {
    this.contents.set(path, content)
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) this.folders.add(path.slice(0, at))
  }
  kind(path) { return this.folders.has(path) ? FILE_TYPE.folder : this.contents.has(path) ? FILE_TYPE.file : 0 }
  names(folder) {
    const start = folder === '/' ? '/' : folder + '/'
    const inside = [...this.contents.keys(), ...this.folders].filter(path => path !== '/' && path.startsWith(start))
    return [...new Set(inside.map(path => path.slice(start.length).split('/')[0]))].sort()
  }
}

/* `a/../b//c` below the root, which `..` does not leave. */
function tidy(path) {
  const parts = []
  for (const part of path.split('/')) {
    if (part === '..') parts.pop()
    else if (part && part !== '.') parts.push(part)
  }
  return '/' + parts.join('/')
}

function runProgram(module, words, files, variables = {}) {
  const begun = performance.now()
  const tree = new Files(files), utf8 = new TextEncoder(), text = new TextDecoder()
  const stream = () => ({content: new Content(), at: 0, kind: FILE_TYPE.device, append: true})
  const output = stream(), errors = stream()
  const open = new Map([[0, stream()], [1, output], [2, errors], [ROOT_FD, {kind: FILE_TYPE.folder, path: '/'}]])
  let memory = null
  const view = () => new DataView(memory.buffer)
  const piece = (at, length) => new Uint8Array(memory.buffer, at >>> 0, length >>> 0)
  const pathAt = (fd, at, length) => {
    const folder = open.get(fd)
    return folder && folder.kind === FILE_TYPE.folder ? tidy(folder.path + '/' + text.decode(piece(at, length))) : null
  }
  const freeFd = () => {
    let fd = ROOT_FD + 1
    while (open.has(fd)) fd++
    return fd
  }
  const set32 = (at, value) => view().setUint32(at >>> 0, value, true)
  const set64 = (at, value) => view().setBigUint64(at >>> 0, BigInt(value), true)

  const list = texts => {
    const all = texts.map(t => utf8.encode(t + '\0'))
    return {
      sizes(count, bytes) {
        set32(count, all.length)
        set32(bytes, all.reduce((sum, one) => sum + one.length, 0))
        return 0
      },
      get(pointers, at) {
        for (const one of all) {
          set32(pointers, at)
          pointers += 4
          piece(at, one.length).set(one)
          at += one.length
        }
        return 0
      },
    }
  }
  const args = list(words), environ = list(Object.entries(variables).map(([name, value]) => `${name}=${value}`))

  const filestat = (at, kind, size) => {
    piece(at, 64).fill(0)
    view().setUint8((at + 16) >>> 0, kind)
    set64(at + 24, 1)
    set64(at + 32, size)
    return 0
  }
  /* Vectors of `count` pieces, each {address, length}. */
  const vectors = (at, count) => Array.from({length: count}, (_, i) => {
    const v = view()
    return piece(v.getUint32((at + 8 * i) >>> 0, true), v.getUint32((at + 8 * i + 4) >>> 0, true))
  })
  const readInto = (fd, at, count, from) => {
    let read = 0
    for (const into of vectors(at, count)) {
      const got = fd.content.bytes.subarray(from + read, Math.min(fd.content.size, from + read + into.length))
      into.set(got)
      read += got.length
    }
    return read
  }
  const file = fd => {
    const found = open.get(fd)
    return found && found.content ? found : null
  }

  const calls = {
    args_sizes_get: args.sizes,
    args_get: args.get,
    environ_sizes_get: environ.sizes,
    environ_get: environ.get,
    clock_time_get(clock, precision, at) {
      set64(at, Math.round(1e6 * (clock === 0 ? Date.now() : performance.now())))
      return 0
    },
    proc_exit(status) { throw new Ended(status) },
    poll_oneoff: () => ERRNO.nosys,
    fd_prestat_get(fd, at) {
      if (fd !== ROOT_FD) return ERRNO.badf
      set32(at, 0)
      set32(at + 4, 1)
      return 0
    },
    fd_prestat_dir_name(fd, at) {
      piece(at, 1)[0] = '/'.charCodeAt(0)
      return 0
    },
    fd_close: fd => (open.delete(fd) ? 0 : ERRNO.badf),
    fd_sync: fd => (open.has(fd) ? 0 : ERRNO.badf),
    fd_fdstat_set_flags: () => 0,
    fd_fdstat_get(fd, at) {
      const found = open.get(fd)
      if (!found) return ERRNO.badf
      piece(at, 24).fill(0)
      /* Standard streams are no terminals: a character device that cannot seek or tell would be one. */
      view().setUint8(at >>> 0, found.kind === FILE_TYPE.device ? FILE_TYPE.file : found.kind)
      set64(at + 8, ALL_RIGHTS)
      set64(at + 16, ALL_RIGHTS)
      return 0
    },
    fd_filestat_get(fd, at) {
      const found = open.get(fd)
      return found ? filestat(at, found.kind, found.content ? found.content.size : 0) : ERRNO.badf
    },
    fd_read(fd, at, count, read) {
      const found = file(fd)
      if (!found) return ERRNO.badf
      const bytes = readInto(found, at, count, found.at)
      found.at += bytes
      set32(read, bytes)
      return 0
    },
    fd_pread(fd, at, count, offset, read) {
      const found = file(fd)
      if (!found) return ERRNO.badf
      set32(read, readInto(found, at, count, Number(offset)))
      return 0
    },
    fd_write(fd, at, count, written) {
      const found = file(fd)
      if (!found) return ERRNO.badf
      let bytes = 0
      for (const from of vectors(at, count)) {
        if (found.append) found.at = found.content.size
        found.content.write(found.at, from)
        found.at += from.length
        bytes += from.length
      }
      set32(written, bytes)
      return 0
    },
    fd_seek(fd, offset, whence, at) {
      const found = file(fd)
      if (!found) return ERRNO.badf
      const to = Number(offset) + [0, found.at, found.content.size][whence]
      if (!(to >= 0)) return ERRNO.inval
      found.at = to
      set64(at, to)
      return 0
    },
    fd_readdir(fd, at, length, cookie, used) {
      const folder = open.get(fd)
      if (!folder || folder.kind !== FILE_TYPE.folder) return ERRNO.badf
      const names = tree.names(folder.path), out = new Content()
      for (let i = Number(cookie); i < names.length && out.size < length; i++) {
        const name = utf8.encode(names[i]), entry = new Uint8Array(24 + name.length), head = new DataView(entry.buffer)
        head.setBigUint64(0, BigInt(i + 1), true)
        head.setUint32(16, name.length, true)
        head.setUint8(20, tree.kind(tidy(folder.path + '/' + names[i])))
        entry.set(name, 24)
        out.write(out.size, entry)
      }
      const bytes = Math.min(out.size, length)
      piece(at, bytes).set(out.bytes.subarray(0, bytes))
      set32(used, bytes)
      return 0
    },
    path_open(fd, lookup, at, length, flags, rights, inherited, fdFlags, result) {
      const path = pathAt(fd, at, length), kind = path && tree.kind(path)
      const create = flags & 1, folder = flags & 2, exclusive = flags & 4, truncate = flags & 8
      if (!path) return ERRNO.badf
      if (!kind && (!create || tree.kind(tidy(path + '/..')) !== FILE_TYPE.folder)) return ERRNO.noent
      if (kind && exclusive) return ERRNO.exist
      if (folder && kind !== FILE_TYPE.folder) return ERRNO.notdir
      if (kind === FILE_TYPE.folder && truncate) return ERRNO.isdir
      const number = freeFd()
      if (kind === FILE_TYPE.folder) {
        open.set(number, {kind, path})
      } else {
        if (!kind || truncate) tree.contents.set(path, new Content())
        open.set(number, {kind: FILE_TYPE.file, content: tree.contents.get(path), at: 0, append: (fdFlags & 1) !== 0})
      }
      set32(result, number)
      return 0
    },
    path_filestat_get(fd, flags, at, length, stat) {
      const path = pathAt(fd, at, length), kind = path && tree.kind(path)
      if (!kind) return ERRNO.noent
      return filestat(stat, kind, kind === FILE_TYPE.file ? tree.contents.get(path).size : 0)
    },
    path_readlink: (fd, at, length) => (tree.kind(pathAt(fd, at, length)) ? ERRNO.inval : ERRNO.noent),
    path_create_directory(fd, at, length) {
      const path = pathAt(fd, at, length)
      if (tree.kind(path)) return ERRNO.exist
      if (tree.kind(tidy(path + '/..')) !== FILE_TYPE.folder) return ERRNO.noent
      tree.folders.add(path)
      return 0
    },
    path_remove_directory(fd, at, length) {
      const path = pathAt(fd, at, length)
      if (tree.kind(path) !== FILE_TYPE.folder) return ERRNO.noent
      if (tree.names(path).length) return ERRNO.notempty
      tree.folders.delete(path)
      return 0
    },
    path_unlink_file(fd, at, length) {
      return tree.contents.delete(pathAt(fd, at, length)) ? 0 : ERRNO.noent
    },
    path_rename(fd, at, length, toFd, toAt, toLength) {
      const from = pathAt(fd, at, length), to = pathAt(toFd, toAt, toLength)
      if (tree.kind(from) !== FILE_TYPE.file) return tree.kind(from) ? ERRNO.nosys : ERRNO.noent
      tree.contents.set(to, tree.contents.get(from))
      if (from !== to) tree.contents.delete(from)
      return 0
    },
  }
  /* cmake/wasi/unistd.h */
  const duplicates = {
    dup(fd) {
      if (!open.has(fd)) return -1
      const number = freeFd()
      open.set(number, open.get(fd))
      return number
    },
    dup2(from, to) {
      if (!open.has(from)) return -1
      open.set(to, open.get(from))
      return to
    },
  }

  /* Calls of commands that the page does not start. */
  for (const {module: from, name} of WebAssembly.Module.imports(module))
    if (from === 'wasi_snapshot_preview1' && !calls[name]) calls[name] = () => ERRNO.nosys

  const instance = new WebAssembly.Instance(module, {wasi_snapshot_preview1: calls, zplan: duplicates})
  memory = instance.exports.memory
  let status = 0
  try {
    instance.exports._start()
  } catch (error) {
    if (!(error instanceof Ended)) throw error
    status = error.status
  }
  files.clear()
  for (const [path, content] of tree.contents) files.set(path, content.whole())
  return {status, out: text.decode(output.content.whole()), err: text.decode(errors.content.whole()),
    seconds: (performance.now() - begun) / 1000, memoryMiB: memory.buffer.byteLength / MIB}
}
