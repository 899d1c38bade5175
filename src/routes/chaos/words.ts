import type { Because, DecisionEntry } from '../../chaos/journal/entry.ts'
import { formatDuration } from '../../units/duration.ts'

/** Says of a decision, in one sentence, who was hit or not, and why. */
export function inWords(entry: DecisionEntry): string {
  const { fault, type, side, attempt, call } = entry
  const target = `${call.server}/${call.tool ?? call.method}`
  const what = `${fault} (${type}, ${side} side), attempt ${attempt} at ${target}`
  return `${what}: ${entry.because === undefined ? hit(entry) : `not hit: ${reasons[entry.because](entry)}`}`
}

const reasons: Readonly<Record<Because, (entry: DecisionEntry) => string>> = {
  rate: (entry) =>
    entry.step === undefined
      ? `the draw ${shown(entry.u)} is not below the rate ${entry.rate}`
      : `no burst in ${stepOf(entry)}, whose draw is ${shown(entry.u)} (rate ${entry.rate})`,
  schedule: ({ count, sinceMs, u }) =>
    `its schedule leaves out call ${count} of those that match, ${formatDuration(Math.round(sinceMs))} after it was armed (draw ${shown(u)})`,
  write: (entry) => `${drawn(entry)}, but the tool is not known to be read-only and allowWrites is false`,
  max_injections: (entry) => `${drawn(entry)}, but maxInjections is used up`,
  overflow: (entry) => `${drawn(entry)}, but it holds maxConcurrent calls already`,
  refused: (entry) => `${drawn(entry)}, but the fault cannot work with this server`,
  shadow: (entry) => `${drawn(entry)}, but in shadow mode nothing is done`,
}

function hit(entry: DecisionEntry): string {
  const { status, note, outcome, released, fate, agent } = entry
  const parts = [`hit: ${drawn(entry)}`]
  if (status === 'pending') parts.push('still under way')
  if (status === 'not_applicable') parts.push(`there was nothing for it to do${reasonIn(note)}`)
  if (status === 'error') parts.push('the engine failed, and the call went on unharmed')
  if (released !== undefined) parts.push(`cut short: ${released}`)
  if (outcome !== undefined) parts.push(`the attempt ended as ${outcome}`)
  if (fate !== undefined) parts.push(fates[fate])
  if (agent !== undefined) parts.push(`what the agent did next: ${agent}`)
  return parts.join('; ')
}

const fates = {
  masked: 'masked: the agent never knew',
  surfaced: 'surfaced: the agent was told',
  escaped: 'escaped: a corrupted reply reached the agent looking fine',
}

const drawn = (entry: DecisionEntry) =>
  entry.step === undefined
    ? `the draw ${shown(entry.u)} is below the rate ${entry.rate}`
    : `a burst in ${stepOf(entry)}, whose draw is ${shown(entry.u)} (rate ${entry.rate})`

const stepOf = ({ step }: DecisionEntry) => `${step?.per} ${step?.index}`

const reasonIn = (note: DecisionEntry['note']) =>
  typeof note?.why === 'string' ? ` (${note.why.slice(0, 200)})` : ''

/** Cut and not rounded, so that no draw looks as if it had reached the rate. */
const shown = (u: number) => String(Math.floor(u * 1e6) / 1e6)
