import { parts } from './chart-parts.ts'

/** Draws the samples of a run in a browser, with uPlot. The colours come from the style of the page. */
export const runScript = String.raw`(() => {${parts}
  const dashes = [[3, 3], [], [9, 4]]

  function marks(u) {
    const { ctx, bbox } = u
    const ratio = uPlot.pxRatio
    ctx.save()
    ctx.strokeStyle = ctx.fillStyle = color('--soft')
    ctx.lineWidth = ratio
    ctx.setLineDash([3 * ratio, 3 * ratio])
    ctx.font = 12 * ratio + 'px system-ui, sans-serif'
    for (const mark of data.marks) {
      const at = Math.round(u.valToPos(mark.at, 'x', true))
      ctx.beginPath()
      ctx.moveTo(at, bbox.top)
      ctx.lineTo(at, bbox.top + bbox.height)
      ctx.stroke()
      ctx.fillText(mark.text, at + 4 * ratio, bbox.top + 14 * ratio)
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
        { ...axis(), label: 'seconds since the beginning', labelSize: 22 },
        { ...axis(), label, labelSize: 22, size: 56 },
      ],
      series: [
        { label: 'after' },
        ...data.arms.map((arm, at) => ({
          label: arm.name, stroke: color('--arm-' + at), width: 2, dash: dashes[at], points: { show: false }, spanGaps: false,
        })),
      ],
      hooks: { draw: [marks] },
    }, [data.at, ...data.arms.map((arm) => arm[key])], document.getElementById(id))
  }

  drawing('p95-chart', (width) => [
    chart('p95-chart', 'p95', 'p95, ms', width),
    chart('errors-chart', 'errors', 'failed calls, %', width),
  ])
})()`
