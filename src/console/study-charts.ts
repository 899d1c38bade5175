import { parts } from './chart-parts.ts'

/** Draws the lines over time with uPlot, in the colours of the page. */
export const studyScript = String.raw`(() => {${parts}
  const dashes = [[], [9, 4], [3, 3]]
  function chart(one, at, width) {
    return new uPlot({
      width,
      height: 260,
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false } },
      axes: [{ ...axis(), values: (_, splits) => splits.map((value) => value + 's') }, { ...axis(), size: 60 }],
      series: [
        { label: 'second' },
        ...one.lines.map(({ name }, line) => ({
          label: name, stroke: color('--arm-' + (line + 1)), width: 2, dash: dashes[line], points: { show: false },
        })),
      ],
    }, [one.atS, ...one.lines.map(({ values }) => values)], document.getElementById('chart-' + at))
  }
  drawing('chart-0', (width) => data.map((one, at) => chart(one, at, width)))
})()`
