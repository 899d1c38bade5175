import { marks } from './chart-marks.ts'
import { parts } from './chart-parts.ts'

/** Draws the samples of a run in a browser, with uPlot. The colours come from the style of the page. */
export const runScript = String.raw`(() => {${parts}${marks}
  const dashes = [[3, 3], [], [9, 4]]

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
