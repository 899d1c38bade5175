import type { Millis } from '../../../../mesh/clock.ts'
import type { Paint } from '../../../../telemetry/colours.ts'
import { seconds } from '../../../shared/progress.ts'
import type { Tally } from '../../../../load/shop-agents.ts'
import { type FaultCount, fates, type Gates, type Reading, totalOf } from './reading.ts'
import { numbered } from '../../../../units/numbered.ts'

export interface PhaseView {
  readonly name: string
  readonly reading: Reading
  readonly tally: Tally
}

export interface View {
  /** Names of the current phase and its act. */
  readonly title: string
  readonly elapsedMs: Millis
  readonly totalMs: Millis
  readonly phases: readonly PhaseView[]
  readonly reading: Reading
  readonly gates: Gates
  /** Names of all faults of the demo. All rows exist from the start, because the table is redrawn in place. */
  readonly faults: readonly string[]
  readonly armed: ReadonlySet<string>
}

const share = (part: number, whole: number): number | undefined => (whole === 0 ? undefined : part / whole)

/** Formats a share in percent, rounded down, so only a share of exactly 1 is shown as 100 %. */
const percent = (ratio: number | undefined): string =>
  ratio === undefined ? '-' : `${(Math.floor(ratio * 1_000) / 10).toFixed(1)} %`

/** Effective tool availability. */
const etaOf = ({ good, eligible }: Reading['ofAgents']) => share(good, eligible)

export function table(view: View, paint: Paint): readonly string[] {
  const { title, elapsedMs, totalMs } = view
  return [
    `${paint('strong', title)}  ${paint('aside', `${seconds(elapsedMs)} of ${seconds(totalMs)}`)}`,
    '',
    ...phaseLines(view.phases, paint),
    '',
    ...gateLines(view.gates, paint),
    '',
    ...faultLines(view, paint),
  ]
}

/** Returns a table row: the first cell is aligned left, the other cells right. */
function row(first: string, ...others: readonly string[]): string {
  return first.padEnd(7) + others.map((cell) => cell.padStart(12)).join('')
}

/** Returns the table of availability at servers and for agents, with the answers that agents know to be right. */
export function phaseLines(phases: readonly PhaseView[], paint: Paint): readonly string[] {
  const lines = phases.map(({ name, reading, tally }) => {
    const { calls, answered, ofServers, ofAgents } = reading
    const ratio = etaOf(ofAgents)
    const text = row(
      name,
      `${calls}/${calls - answered}`,
      percent(etaOf(ofServers)),
      percent(ratio),
      percent(share(ofAgents.unchecked, ofAgents.returned)),
      percent(share(tally.right, tally.calls)),
      `${reading.succeeded}/${reading.succeeded + reading.failed}`,
    )
    return ratio === undefined || ratio === 1 ? text : paint(ratio < 0.9 ? 'bad' : 'doubtful', text)
  })
  const head = row('', 'calls/errors', 'ETA servers', 'ETA agents', 'unchecked', 'right', 'tasks done')
  return [paint('aside', head), ...lines]
}

/** Returns a line with the state of each server's gate; `none` without policies. */
function gateLines(gates: Gates, paint: Paint): readonly string[] {
  return ['docs', 'orders'].map((server) => {
    const state = gates.get(server)
    const text = `gate of ${server.padEnd(7)} ${gateInWords(state)}`
    if (state === undefined || state === 'closed') return text
    return paint(state === 'open' ? 'bad' : 'doubtful', text)
  })
}

function gateInWords(state: string | undefined): string {
  switch (state) {
    case 'open':
      return 'open: the server is lost, and its calls wait'
    case 'half_open':
      return 'half-open: the server is back, and calls go one by one at first'
    case 'closed':
      return 'closed: calls pass'
    default:
      return 'none'
  }
}

const keys = ['injected', ...fates] as const

/** Returns a row with a cell for each entry of `keys`; each column is as wide as its heading. */
const faultRow = (name: string, cell: (key: (typeof keys)[number]) => string): string =>
  name.padEnd(15) + keys.map((key) => cell(key).padStart(key.length + 2)).join('')

/** Returns the table of the faults injected into agents' calls, with their outcomes. */
export function faultLines(
  { faults, armed, reading }: Pick<View, 'faults' | 'armed' | 'reading'>,
  paint: Paint,
): readonly string[] {
  const total = totalOf(reading)
  return [
    paint(
      'aside',
      faultRow('fault', (key) => key.replace('_', ' ')),
    ),
    ...faults.map((name) => {
      const text = faultRow(name, (key) => String(reading.faults.get(name)?.[key] ?? 0))
      return armed.has(name) ? paint('doubtful', text) : text
    }),
    paint(
      'strong',
      faultRow('all', (key) => String(total[key])),
    ),
  ]
}

/** Returns the state in a line, for output that is no terminal. */
export function line({ title, elapsedMs, phases, reading, gates }: View): string {
  const now = phases.at(-1)
  const { injected, ...ended } = totalOf(reading)
  const open = [...gates.values()].filter((state) => state === 'open').length
  const { ofServers, ofAgents } = now?.reading ?? reading
  return [
    `${seconds(elapsedMs)} ${title}`,
    `${numbered(reading.calls, 'call')}, ${numbered(reading.calls - reading.answered, 'error')}`,
    `ETA ${now?.name ?? ''}: servers ${percent(etaOf(ofServers))}, agents ${percent(etaOf(ofAgents))}`,
    `tasks ${reading.succeeded} / ${reading.succeeded + reading.failed}`,
    `${open} gates open`,
    `faults ${sumOf({ injected, ...ended })}`,
  ].join(' | ')
}

/** Returns a text with the number of injections as the sum of all fates. */
export function sumOf(count: FaultCount): string {
  const { injected, masked, delayed, surfaced, escaped } = count
  return `${injected} = ${masked} masked + ${delayed} delayed + ${surfaced} surfaced + ${escaped} escaped + ${count.not_reached} not reached`
}
