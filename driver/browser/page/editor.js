/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the file, the numbers of its lines, and messages at the lines that they are about. */
const LINE_PIXELS = 18
const byId = id => document.getElementById(id)

function el(name, attributes, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else element.setAttribute(key, value)
  }
  element.append(...children)
  return element
}

let diagnostics = [] // {level, text, more, line, column}; line 0: of no place in the file

function drawLines() {
  const lines = byId('file').value.split('\n'), bad = new Set(diagnostics.map(d => d.line))
  byId('gutter').replaceChildren(...lines.map((_, i) => el('div', bad.has(i + 1) ? {class: 'bad'} : {}, String(i + 1))))
  byId('marks').replaceChildren(...diagnostics.filter(d => d.line).map(d => {
    const mark = el('span', {}, d.text)
    mark.dataset.line = d.line
    mark.dataset.column = (lines[d.line - 1] || '').length + 2
    return mark
  }))
  scrollLines()
}

function scrollLines() {
  const file = byId('file')
  byId('gutter').style.transform = `translateY(${-file.scrollTop}px)`
  for (const mark of byId('marks').children) {
    mark.style.top = `${LINE_PIXELS * (mark.dataset.line - 1) - file.scrollTop}px`
    mark.style.left = `calc(${mark.dataset.column}ch - ${file.scrollLeft}px)`
  }
}

function goTo(line, column) {
  const file = byId('file'), before = file.value.split('\n').slice(0, line - 1).join('\n')
  const at = before.length + (line > 1 ? 1 : 0) + column - 1
  file.focus()
  file.setSelectionRange(at, at)
  file.scrollTop = Math.max(0, LINE_PIXELS * (line - 4))
}

function showDiagnostics(list) {
  diagnostics = list
  byId('messages').replaceChildren(...list.map(d => {
    const place = d.line ? [el('button', {type: 'button', onclick: () => goTo(d.line, d.column)}, `${d.line}:${d.column}`)] : []
    return el('li', {class: d.level}, ...place, `${d.level}: ${d.text}`, ...(d.more ? [el('span', {class: 'more'}, d.more)] : []))
  }))
  drawLines()
}

function setFile(text) {
  byId('file').value = text
  showDiagnostics([])
}

/* JSON lines of --message-format json, and the other lines. */
function readDiagnostics(text) {
  const list = [], rest = []
  for (const line of text.split('\n')) {
    let d = null
    try { d = line.startsWith('{') ? JSON.parse(line) : null } catch { d = null }
    if (!d || !d.level) {
      rest.push(line)
      continue
    }
    const span = d.spans.find(s => s.is_primary), here = span && span.file_name.endsWith('model.dz')
    const more = d.children.map(c => `${c.level}: ${c.message}`).join('\n')
    list.push({level: d.level, text: d.message, more, line: here ? span.line_start : 0, column: here ? span.column_start : 0})
  }
  return {list, rest: rest.join('\n').trim()}
}
