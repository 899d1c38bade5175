import { parseArgs } from 'node:util'
import { compareReplays, judged, policySets, recordLive } from './replay-stage.ts'

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: '1' } },
})
const [minutes, seed] = [Number(values.minutes), Number(values.seed)]
if (!(minutes > 0 && minutes <= 120)) throw new Error('--minutes: expected a number above 0, up to 120')

const sets = Object.entries(policySets).map(([name, defaults]) => ({ name, defaults }))
const runMs = (minutes * 60_000) / sets.length
const recorded = { name: 'A', defaults: policySets.A }
const recording = await recordLive(recorded, runMs, seed)
console.log(`recorded under A: ${recording.calls.length} calls in ${Math.round(runMs / 1_000)} s`)

let [inside, all] = [0, 0]
for (const set of sets) {
  const { name } = set
  const isRecorded = name === recorded.name
  const {
    recorded: found,
    replayed,
    difference,
  } = await compareReplays(recording, isRecorded ? [recorded] : [recorded, set])
  const told = replayed.at(-1)!
  const live = isRecorded
    ? found
    : (await compareReplays(await recordLive(set, runMs, seed + all + 1), [set])).recorded
  console.log(`\n${name}: replayed, against ${isRecorded ? 'the recording' : 'a live run'}`)
  for (const figure of judged) {
    const { estimate, low, high } = isRecorded ? found.figures[figure] : told.figures[figure]
    const [predicted, measured] = [told.figures[figure].estimate, live.figures[figure].estimate]
    const checked = isRecorded ? predicted : measured
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
