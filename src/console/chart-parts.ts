/**
 * The common beginning of the scripts in pages. Defines `data` (of the page), `color(name)` (of its style), `axis()`
 * and `drawing(id, draw)`. `drawing` calls `draw(width)` with the width of the element `id`, at once and after changes
 * of size, colours or paper.
 */
export const parts = String.raw`
  'use strict'
  const data = JSON.parse(document.getElementById('chart-data').textContent)
  const root = document.documentElement
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim()

  const axis = () => ({
    stroke: color('--soft'),
    font: '12px system-ui, sans-serif',
    labelFont: '12px system-ui, sans-serif',
    grid: { stroke: color('--grid'), width: 1 },
    ticks: { stroke: color('--grid'), width: 1, size: 5 },
  })

  function drawing(id, draw) {
    let drawn = []
    function anew(width) {
      for (const chart of drawn) chart.destroy()
      drawn = draw(width)
    }
    const onScreen = () => anew(document.getElementById(id).clientWidth)
    onScreen()
    addEventListener('resize', onScreen)
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', onScreen)
    addEventListener('beforeprint', () => {
      root.classList.add('paper')
      anew(660)
    })
    addEventListener('afterprint', () => {
      root.classList.remove('paper')
      onScreen()
    })
  }
`
