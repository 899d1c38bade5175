import { parts } from './chart-parts.ts'

/**
 * Draws the charts in a browser, with uPlot and the data of the page. Colours come from the style, and follow its
 * changes between light, dark and paper.
 */
export const script = String.raw`(() => {${parts}
  const minus = '\u2212'
  const units = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']]
  /** Dash patterns of the treatments in their order; the control has a pattern of its own. */
  const dashes = [[], [9, 4], [10, 3, 2, 3], [4, 3], [14, 4], [6, 2, 2, 2, 2, 2], [1, 3]]
  const ofControl = [3, 3]
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000]

  /** 5400 as 1h 30m. */
  function after(seconds) {
    let rest = Math.round(seconds)
    const parts = []
    for (const [size, letter] of units) {
      if (rest >= size) parts.push(Math.floor(rest / size) + letter)
      rest %= size
    }
    return parts.length === 0 ? '0s' : parts.slice(0, 2).join(' ')
  }

  const signed = (value, places) => {
    const digits = Math.abs(value).toFixed(places)
    return (Number(digits) === 0 ? '' : value > 0 ? '+' : minus) + digits
  }

  const placesOf = (step) => Math.min(6, (String(Number(step.toPrecision(3))).split('.')[1] || '').length)

  const lastKnown = (values) => values.findLastIndex((value) => value !== null)

  function axes(label, values) {
    return [
      { ...axis(), incrs: steps, space: 70, size: 32, label: 'time since the start', labelSize: 22, labelGap: 2,
        values: (_, splits) => splits.map(after) },
      { ...axis(), label, labelSize: 22, labelGap: 4, space: 36, values,
        size: (_, shown) => 16 + 7 * Math.max(2, ...(shown || []).map((text) => text.length)) },
    ]
  }

  function line(u, value, stroke, dash, text) {
    const { ctx, bbox } = u
    const ratio = uPlot.pxRatio
    const y = Math.round(u.valToPos(value, 'y', true))
    if (y < bbox.top || y > bbox.top + bbox.height) return
    ctx.save()
    ctx.strokeStyle = stroke
    ctx.lineWidth = ratio
    ctx.setLineDash(dash.map((part) => part * ratio))
    ctx.beginPath()
    ctx.moveTo(bbox.left, y)
    ctx.lineTo(bbox.left + bbox.width, y)
    ctx.stroke()
    if (text !== undefined) {
      ctx.fillStyle = stroke
      ctx.font = 12 * ratio + 'px system-ui, sans-serif'
      ctx.textAlign = 'right'
      ctx.textBaseline = 'bottom'
      ctx.fillText(text, bbox.left + bbox.width - 6 * ratio, y - 3 * ratio)
    }
    ctx.restore()
  }

  const common = (width, height) => ({
    width,
    height,
    padding: [12, 18, 0, 0],
    cursor: { y: false, drag: { x: false, y: false, setScale: false }, points: { size: 7 } },
    focus: { alpha: 1 },
    legend: { markers: { width: 0, fill: (u, at) => u.series[at].stroke(u, at) } },
  })

  const x = { time: false, range: () => [0, data.at[data.at.length - 1]] }

  const timeSeries = { label: 'after', value: (u, value, _, index) => after(index == null ? data.at[data.at.length - 1] : value) }

  function dashOf({ name }) {
    const at = data.effects.findIndex((one) => one.name === name)
    return at < 0 ? ofControl : dashes[at]
  }

  function effect(width) {
    const unit = data.unit === 'count' ? '' : ' ' + data.unit
    const series = [timeSeries]
    const bands = []
    const columns = [data.at]
    const text = (one, index) => {
      const at = index == null ? lastKnown(one.difference) : index
      if (at < 0 || one.difference[at] === null) return '–'
      const known = one.low[at] !== null && one.high[at] !== null
      const range = known ? ' (' + signed(one.low[at], one.places) + ' to ' + signed(one.high[at], one.places) + ')' : ''
      return signed(one.difference[at], one.places) + unit + range
    }
    data.effects.forEach((one) => {
      const stroke = color('--arm-' + one.color)
      const edge = { stroke: stroke + '80', width: 1, points: { show: false }, class: 'edge' }
      series.push({
        label: one.name, stroke, width: 2, dash: dashOf(one), points: { show: false },
        value: (u, _, __, index) => text(one, index),
      })
      series.push({ ...edge, label: one.name + ': low' }, { ...edge, label: one.name + ': high' })
      columns.push(one.difference, one.low, one.high)
      bands.push({ series: [series.length - 1, series.length - 2], fill: stroke + '26' })
    })
    return new uPlot({
      ...common(width, 320),
      scales: { x, y: { range: () => data.range } },
      axes: axes('difference' + (unit && ',' + unit), (u, splits, _, __, step) => splits.map((value) => signed(value, placesOf(step)))),
      series,
      bands,
      hooks: {
        drawClear: [(u) => {
          if (data.minimumEffect === 0) return
          const top = u.valToPos(Math.min(data.minimumEffect, data.range[1]), 'y', true)
          const bottom = u.valToPos(Math.max(-data.minimumEffect, data.range[0]), 'y', true)
          u.ctx.save()
          u.ctx.fillStyle = color('--minimum-effect')
          u.ctx.fillRect(u.bbox.left, top, u.bbox.width, bottom - top)
          u.ctx.restore()
        }],
        drawAxes: [(u) => line(u, 0, color('--ink'), [])],
      },
    }, columns, document.getElementById('effect-chart'))
  }

  function exposure(width) {
    const series = data.exposure.map((one, at) => ({
      label: one.name, stroke: color('--arm-' + one.color), width: 2, dash: dashOf(one), points: { show: false },
      value: (u, value, _, index) => String(index == null ? one.units[one.units.length - 1] : value),
    }))
    const most = Math.max(data.minimumUnits, ...data.exposure.flatMap((one) => one.units))
    return new uPlot({
      ...common(width, 240),
      scales: { x, y: { range: () => [0, most * 1.12] } },
      axes: axes('units', (u, splits) => splits.map(String)),
      series: [timeSeries, ...series],
      hooks: { drawAxes: [(u) => line(u, data.minimumUnits, color('--soft'), [3, 3], 'each arm needs ' + data.minimumUnits)] },
    }, [data.at, ...data.exposure.map((one) => one.units)], document.getElementById('exposure-chart'))
  }

  // Quantiles have no effect over time.
  const charts = document.getElementById('effect-chart') ? [effect, exposure] : [exposure]
  for (const note of document.querySelectorAll('.note[hidden]')) note.hidden = false
  for (const details of document.querySelectorAll('details')) details.open = false
  drawing('exposure-chart', (width) => charts.map((chart) => chart(width)))
})()`
