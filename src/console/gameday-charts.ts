import { marks } from './chart-marks.ts'
import { parts } from './chart-parts.ts'

/** Draws the losses over a GameDay in a browser, with uPlot. The colours come from the style of the page. */
export const gameDayScript = String.raw`(() => {${parts}${marks}
  function pauses(u) {
    const { ctx, bbox } = u
    ctx.save()
    ctx.fillStyle = color('--minimum-effect')
    for (const pause of data.pauses) {
      const from = Math.max(bbox.left, u.valToPos(pause.from, 'x', true))
      const until = Math.min(bbox.left + bbox.width, u.valToPos(pause.until, 'x', true))
      if (until > from) ctx.fillRect(from, bbox.top, until - from, bbox.height)
    }
    ctx.restore()
  }

  function chart(id, key, label, width) {
    return new uPlot({
      width,
      height: 260,
      cursor: { y: false, drag: { x: false, y: false, setScale: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [
        { ...axis(), label: 'seconds since the begin of the GameDay', labelSize: 22 },
        { ...axis(), label, labelSize: 22, size: 56 },
      ],
      series: [
        { label: 'after' },
        ...data.lines.map((line, at) => ({
          label: line.name, stroke: color('--arm-' + line.color), width: 2, dash: at < 8 ? [] : [6, 3],
          points: { show: false }, spanGaps: false,
        })),
      ],
      hooks: { drawClear: [pauses], draw: [marks] },
    }, [data.at, ...data.lines.map((line) => line[key])], document.getElementById(id))
  }

  drawing('errors-chart', (width) => [chart('errors-chart', 'errors', 'failed calls, %', width)])
  drawing('p95-chart', (width) => [chart('p95-chart', 'p95', 'p95, ms', width)])
})()`
