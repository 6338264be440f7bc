/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the page together: sections, the list of them, the switch of the theme, and what print wants. */

const PARTS = DATA.kind === 'compare' ? [drawCompare]
  : [drawAnswer, drawMachine, drawMemory, drawTimeline, drawStep, drawRoofline, drawAlternatives, drawRejected, drawRun, drawProfile, drawMoves, drawConstants]

/* A part of the data that is not as it should be, in a file that somebody edited, does not take the others with it. */
function drawPart(part) {
  try {
    return part()
  } catch (error) {
    return el('p', {class: 'warning'}, `A part of the page cannot be drawn: ${error.message}`)
  }
}

const THEMES = ['auto', 'light', 'dark']
function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
  document.dispatchEvent(new Event('theme'))
}

function themeSwitch() {
  return el('label', {class: 'theme'}, 'theme ', el('select', {onchange: e => setTheme(e.target.value)}, THEMES.map(t => el('option', {value: t}, t))))
}

/* Paper is light and nothing on it can be opened. */
function printWhole() {
  let closed = [], theme = null
  window.addEventListener('beforeprint', () => {
    theme = document.documentElement.dataset.theme || 'auto'
    closed = [...document.querySelectorAll('main details:not([open])')].filter(d => !d.closest('#constants, #communication'))
    closed.forEach(d => (d.open = true))
    setTheme('light')
  })
  window.addEventListener('afterprint', () => {
    closed.forEach(d => (d.open = false))
    setTheme(theme)
  })
}

function main() {
  const sections = PARTS.map(drawPart).flat().filter(Boolean)
  const links = sections.filter(s => s.id).map(s => el('a', {href: '#' + s.id}, s.id === 'answer' ? 'Answer' : s.querySelector('h2').textContent.split(/[,:]/)[0]))
  document.getElementById('page').replaceChildren(el('header', {}, el('nav', {'aria-label': 'sections'}, links), themeSwitch()), ...sections)
  document.body.append(note)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => document.dispatchEvent(new Event('theme')))
  printWhole()
}
main()
