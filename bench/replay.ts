/** Holds what a replay says against live runs; see README.md. */
import { parseArgs } from 'node:util'
import { compareReplays, judged, policySets, type PolicySetName, recordLive } from './replay-stage.ts'

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: '1' } },
})
const [minutes, seed] = [Number(values.minutes), Number(values.seed)]
if (!(minutes > 0 && minutes <= 120)) throw new Error('--minutes: expected a number above 0, up to 120')

const names = Object.keys(policySets) as PolicySetName[]
const runMs = (minutes * 60_000) / names.length
const recording = await recordLive('A', runMs, seed)
console.log(`recorded under A: ${recording.calls.length} calls in ${Math.round(runMs / 1_000)} s`)

let [inside, all] = [0, 0]
for (const name of names) {
  const { recorded, replayed, difference } = await compareReplays(
    recording,
    name === 'A' ? ['A'] : ['A', name],
  )
  const told = replayed.at(-1)!
  const live =
    name === 'A'
      ? recorded
      : (await compareReplays(await recordLive(name, runMs, seed + all + 1), [name])).recorded
  console.log(`\n${name}: replayed, against ${name === 'A' ? 'what was recorded' : 'a live run'}`)
  for (const figure of judged) {
    const { estimate, low, high } = name === 'A' ? recorded.figures[figure] : told.figures[figure]
    const [predicted, measured] = [told.figures[figure].estimate, live.figures[figure].estimate]
    const checked = name === 'A' ? predicted : measured
    const isInside = checked >= low && checked <= high
    all++
    if (isInside) inside++
    const change = difference === undefined ? '' : `, change ${shown(difference.figures[figure].estimate)}`
    console.log(
      `  ${figure.padEnd(12)} replayed ${shown(predicted)}, live ${shown(measured)}, interval ${shown(low)} to ${shown(high)} (estimate ${shown(estimate)})${change}${isInside ? '' : '  OUTSIDE'}`,
    )
  }
}
console.log(`\n${inside} of ${all} figures inside`)

function shown(value: number): string {
  return String(Number(value.toPrecision(4)))
}
