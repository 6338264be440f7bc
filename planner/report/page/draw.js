/* SPDX-License-Identifier: Apache-2.0 */
/* Elements, figures, tables and the note that follows pointer and keyboard. */

const SVG = 'http://www.w3.org/2000/svg'

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (name === 'note') element.noteOf = value
    else element.setAttribute(name, value === true ? '' : clean(value))
  }
  for (const child of children.flat(Infinity))
    if (child != null && child !== false) element.append(child instanceof Node ? child : clean(child))
  return element
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children)
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children)

/* Colours are classes: a policy keeps style attributes from having an effect, and themes and print change them. */
const style = (element, property, value) => {
  element.style.setProperty(property, value)
  return element
}

/* The figure at `path`, shown as its kind says. */
function figure(path, kind) {
  const x = number(path)
  if (isNaN(x)) return el('span', {class: 'dim'}, '-')
  return el('data', {value: String(x), 'data-path': path, 'data-kind': kind}, mark(path) + SHOW[kind](x))
}
/* path / over, as a share. */
function share(path, over) {
  const x = number(path) / number(over)
  if (!isFinite(x)) return el('span', {class: 'dim'}, '-')
  return el('data', {value: String(x), 'data-path': path, 'data-over': over, 'data-kind': 'share'}, mark(path) + SHOW.share(x))
}
/* The sum of several; one of them may be an estimate. */
function total(paths, kind) {
  const x = paths.reduce((sum, path) => sum + number(path), 0)
  return el('data', {value: String(x), 'data-sum': paths.join(' '), 'data-kind': kind}, (paths.some(path => mark(path) && number(path) > 0) ? '~' : '') + SHOW[kind](x))
}

/* In a drawing. */
const figureText = (attributes, path, kind) =>
  svg('text', {...attributes, 'data-value': String(number(path)), 'data-path': path, 'data-kind': kind}, mark(path) + SHOW[kind](number(path)))

function section(id, title, ...children) {
  return el('section', {id, 'aria-labelledby': id + '-title'}, el('h2', {id: id + '-title'}, title), children)
}
const folded = (title, ...children) => el('details', {}, el('summary', {}, title), children)
const legend = rows =>
  el('p', {class: 'legend'}, rows.map(([name, colour]) => el('span', {}, el('i', {class: 'b-' + colour}), name)))
const scroll = (label, ...children) => el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label}, children)

/* columns: {name, number, cell(row, i), key(row)}; with a key the column sorts. Rows beyond `most` come when asked for. */
function table(label, columns, rows, most = 40) {
  const body = el('tbody')
  let shown = rows.map((row, i) => [row, i])
  let limit = most
  const more = el('button', {class: 'more', onclick: () => ((limit = Infinity), put())})
  const put = () => {
    body.replaceChildren(...shown.slice(0, limit).map(([row, i]) =>
      el('tr', {class: row.mark}, columns.map(c => el('td', {class: c.number && 'number'}, c.cell(row, i))))))
    more.hidden = shown.length <= limit
    more.textContent = 'all ' + shown.length + ' rows'
  }
  const heads = columns.map(c => {
    if (!c.key) return el('th', {class: c.number && 'number', scope: 'col'}, c.name)
    const head = el('th', {class: c.number && 'number', scope: 'col', 'aria-sort': 'none'},
      el('button', {onclick: () => sort(c, head)}, c.name))
    return head
  })
  const sort = (column, head) => {
    const down = head.getAttribute('aria-sort') !== 'descending'
    heads.forEach(h => h.hasAttribute('aria-sort') && h.setAttribute('aria-sort', 'none'))
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending')
    const order = (a, b) => (typeof a === 'string' ? a.localeCompare(b) : (isNaN(a) ? -Infinity : a) - (isNaN(b) ? -Infinity : b))
    shown = rows.map((row, i) => [row, i]).sort((x, y) => (down ? -1 : 1) * order(column.key(x[0]), column.key(y[0])) || x[1] - y[1])
    put()
  }
  put()
  return [scroll(label, el('table', {}, el('caption', {class: 'hidden'}, label), el('thead', {}, el('tr', {}, heads)), body)), more]
}

/* ---- the note: what pointer or keyboard are on ---- */

const note = el('div', {id: 'note', role: 'status', hidden: true})

function showNote(lines, x, y) {
  note.replaceChildren(...lines.filter(l => l != null && l !== false).map((line, i) => el('div', {class: i ? '' : 'first'}, line)))
  note.hidden = false
  const box = note.getBoundingClientRect()
  const left = Math.max(8, Math.min(x + 14, document.documentElement.clientWidth - box.width - 8))
  const below = y + 18 + box.height < window.innerHeight
  style(note, 'left', left + 'px')
  style(note, 'top', (below ? y + 18 : Math.max(8, y - box.height - 12)) + 'px')
}
const hideNote = () => (note.hidden = true)

/* Elements with a note answer the pointer; the keyboard reaches them through `drawing`. */
document.addEventListener('pointermove', e => {
  const marked = e.target.closest && e.target.closest('.has-note')
  if (marked && marked.noteOf) showNote(marked.noteOf(), e.clientX, e.clientY)
  else if (!e.target.closest || !e.target.closest('canvas, .tiles')) hideNote()
})
document.addEventListener('keydown', e => e.key === 'Escape' && hideNote())

/* An SVG of so many user units; arrow keys go from mark to mark. */
function drawing(width, height, label, ...children) {
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label, tabindex: 0}, children)
  let on = -1
  const go = step => {
    const marks = [...picture.querySelectorAll('.has-note')]
    if (!marks.length) return
    marks.forEach(m => m.classList.remove('on'))
    on = Math.max(0, Math.min(marks.length - 1, on + step))
    marks[on].classList.add('on')
    const box = marks[on].getBoundingClientRect()
    showNote(marks[on].noteOf(), box.left + box.width / 2, box.top + box.height / 2)
  }
  picture.addEventListener('keydown', e => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10}[e.key]
    if (!step) return
    e.preventDefault()
    go(step)
  })
  picture.addEventListener('blur', () => {
    picture.querySelectorAll('.on').forEach(m => m.classList.remove('on'))
    hideNote()
  })
  return picture
}
