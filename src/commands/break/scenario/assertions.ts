import { formatDuration, roundedDuration } from '../../../units/duration.ts'
import type { WrittenAssertions, WrittenCalls } from './assertions-schema.ts'
import {
  callsDuring,
  closedAfter,
  type Evidence,
  type Fates,
  FEWEST_CALLS,
  openings,
  p95,
  type Range,
  recoveryOf,
  successShare,
} from './evidence.ts'
import { numbered } from '../../../units/numbered.ts'

/** The judgement on an assertion. `undecided`: the run might have decided it. `skipped`: nothing exists that the assertion is about. */
export interface Judged {
  readonly verdict: 'pass' | 'fail' | 'undecided' | 'skipped'
  /** The measured value, or the reason why no value was measured. */
  readonly measured: string
}

/** One claim, with its bound in words. */
export interface Assertion {
  readonly name: string
  readonly judge: (evidence: Evidence) => Judged
}

const undecided = (why: string): Judged => ({ verdict: 'undecided', measured: why })
const passIf = (isTrue: boolean, measured: string): Judged => ({
  verdict: isTrue ? 'pass' : 'fail',
  measured,
})
const NO_TRAFFIC = 'not decided: it takes calls of the run itself'

interface Bound {
  readonly atLeast?: number | undefined
  readonly atMost?: number | undefined
}

const isWithin = (value: number, { atLeast = -Infinity, atMost = Infinity }: Bound): boolean =>
  value >= atLeast && value <= atMost

function boundInWords({ atLeast, atMost }: Bound, show: (value: number) => string = String): string {
  return [
    ...(atLeast === undefined ? [] : [`at least ${show(atLeast)}`]),
    ...(atMost === undefined ? [] : [`at most ${show(atMost)}`]),
  ].join(', ')
}

/** Cut and not rounded: what is short of a bound must not look as if it had reached it. */
const ratio = (value: number): string => String(Math.floor(value * 1_000) / 1_000)

type CountBound = 'none' | Bound

const boundOf = (written: CountBound): Bound => (written === 'none' ? { atMost: 0 } : written)
const countInWords = (written: CountBound) => (written === 'none' ? 'none' : boundInWords(written))

/** An assertion about a number that the gateway counts, which is unknown when nobody could read it. */
function counted(
  name: string,
  written: CountBound,
  of: (evidence: Evidence) => number | undefined,
  show: (value: number) => string = String,
): Assertion {
  return {
    name: `${name}: ${countInWords(written)}`,
    judge(evidence) {
      const value = of(evidence)
      if (value === undefined)
        return undecided('not decided: the metrics of the gateway could not be read, or lack calls')
      return passIf(isWithin(value, boundOf(written)), show(value))
    },
  }
}

/** The claims of a scenario, one by one, in the order of its file's reference. */
export function assertionsOf(written: WrittenAssertions): Assertion[] {
  const phases = written.calls === undefined ? [] : [written.calls].flat()
  return [
    ...breakerAssertions(written.breaker),
    ...phases.flatMap((phase) => callAssertions(phase)),
    ...otherAssertions(written.others),
    ...errorAssertions(written.errors),
    ...fateAssertions(written.fates),
    ...(written.retries === undefined
      ? []
      : [counted('calls sent again', written.retries, (evidence) => evidence.counted?.retries)]),
    ...(written.attemptsPerCall === undefined ? [] : [attempts(written.attemptsPerCall)]),
    ...Object.entries(written.rejections ?? {}).flatMap(([reason, one]) =>
      one === undefined
        ? []
        : [counted(`calls rejected as ${reason}`, one, ({ counted: c }) => c && (c.rejections[reason] ?? 0))],
    ),
    ...Object.entries(written.verdicts ?? {}).flatMap(([verdict, one]) =>
      one === undefined
        ? []
        : [counted(`replies judged ${verdict}`, one, ({ counted: c }) => c && (c.verdicts[verdict] ?? 0))],
    ),
    ...recoveryAssertions(written.recovery),
    ...(written.lists === undefined ? [] : [listsKept]),
  ]
}

function breakerAssertions(written: WrittenAssertions['breaker']): Assertion[] {
  const { opens, closes } = written ?? {}
  const found: Assertion[] = []
  if (opens === 'never') {
    found.push({
      name: 'no breaker opens',
      judge(evidence) {
        const open = openings(evidence).filter(({ at }) => at !== undefined)
        return passIf(
          open.length === 0,
          open.length === 0 ? 'none did' : open.map(({ tool }) => tool).join(', '),
        )
      },
    })
  } else if (opens !== undefined) {
    const { withinCalls, within, notBefore } = opens
    if (withinCalls !== undefined)
      found.push({
        name: `breaker opens within ${numbered(withinCalls, 'call')} of a tool`,
        judge: (evidence) => openedWithin(evidence, withinCalls),
      })
    const first = (name: string, isMet: (at: number) => boolean): Assertion => ({
      name,
      judge(evidence) {
        const at = Math.min(...openings(evidence).map(({ at = Infinity }) => at))
        return at === Infinity ? passIf(false, 'none opened') : passIf(isMet(at), roundedDuration(at))
      },
    })
    if (within !== undefined)
      found.push(first(`breaker opens within ${formatDuration(within)}`, (at) => at <= within))
    if (notBefore !== undefined)
      found.push(first(`no breaker opens before ${formatDuration(notBefore)}`, (at) => at >= notBefore))
  }
  if (closes !== undefined)
    found.push({
      name: `breakers are closed again within ${formatDuration(closes.within)} of the faults' end`,
      judge(evidence) {
        if (evidence.breakers.every(({ open }) => open.length === 0))
          return passIf(false, 'none was seen open')
        const after = closedAfter(evidence)
        if (after !== undefined) return passIf(after <= closes.within, roundedDuration(after))
        const still = evidence.breakers.at(-1)?.open ?? []
        return passIf(false, `still open: ${still.slice(0, 5).join(', ')}`)
      },
    })
  return found
}

function openedWithin(evidence: Evidence, most: number): Judged {
  if (evidence.calls === undefined) return undecided(NO_TRAFFIC)
  const all = openings(evidence)
  const closed = all.filter(({ at }) => at === undefined)
  const enough = all.filter(({ tool }) => callsOf(evidence, tool) > most)
  const missing = closed.find((one) => enough.includes(one))
  if (missing !== undefined)
    return passIf(false, `${missing.tool} is not stopped after ${callsOf(evidence, missing.tool)} calls`)
  const opened = all.filter(({ at }) => at !== undefined)
  const last = opened.toSorted((a, b) => b.calls - a.calls)[0]
  if (last === undefined)
    return undecided(`not decided: no tool was called more than ${numbered(most, 'time')}`)
  return passIf(last.calls <= most, `${last.calls} (${last.tool})`)
}

const callsOf = (evidence: Evidence, key: string): number =>
  callsDuring(evidence).filter(({ server, tool }) => `${server}/${tool}` === key).length

function callAssertions({ from, to, succeed, p95: slowestCalls }: WrittenCalls): Assertion[] {
  const times = [
    ...(from === undefined ? [] : [`from ${formatDuration(from)}`]),
    ...(to === undefined ? [] : [`to ${formatDuration(to)}`]),
  ]
  const phase = times.length === 0 ? '' : ` (${times.join(' ')})`
  const during = { ...(from !== undefined && { from }), ...(to !== undefined && { to }) }
  return aboutCalls({ succeed, p95: slowestCalls }, (what) => `${what}${phase}`, during)
}

/** Decided where it is the same however the calls end that have not. */
function rangeIsWithin(
  { least, most, open }: Range,
  bound: Bound,
  show: (value: number) => string = String,
): Judged {
  const measured = least === most ? show(least) : `${show(least)} to ${show(most)}, ${open} have not ended`
  if (isWithin(least, bound) && isWithin(most, bound)) return passIf(true, measured)
  const { atLeast = -Infinity, atMost = Infinity } = bound
  return most < atLeast || least > atMost ? passIf(false, measured) : undecided(`not decided: ${measured}`)
}

/** Assertions about the calls of one part of a run. */
function aboutCalls(
  { succeed, p95: slowestCalls }: { readonly succeed?: Bound | undefined; readonly p95?: Bound | undefined },
  named: (what: string) => string,
  part: Parameters<typeof callsDuring>[1],
): Assertion[] {
  const about = (judge: (evidence: Evidence) => Judged) => (evidence: Evidence) => {
    if (evidence.calls === undefined) return undecided(NO_TRAFFIC)
    const isOfOthers = part?.isHit === false
    if (isOfOthers && !evidence.calls.some(({ isHit }) => !isHit)) return withoutOthers(evidence)
    return judge(evidence)
  }
  const tooFew = undecided(`not decided: fewer than ${FEWEST_CALLS} of these calls ended`)
  const found: Assertion[] = []
  if (succeed !== undefined)
    found.push({
      name: `${named('share of calls that succeed')}: ${boundInWords(succeed)}`,
      judge: about((evidence) => {
        const share = successShare(callsDuring(evidence, part), evidence.clearedAt)
        return share === undefined ? tooFew : rangeIsWithin(share, succeed, ratio)
      }),
    })
  if (slowestCalls !== undefined)
    found.push({
      name: `${named('p95 of calls')}: ${boundInWords(slowestCalls, formatDuration)}`,
      judge: about((evidence) => {
        const limit = slowestCalls.atMost ?? slowestCalls.atLeast ?? 0
        const value = p95(callsDuring(evidence, part), limit, evidence.clearedAt)
        return value === undefined ? tooFew : passIf(isWithin(value, slowestCalls), roundedDuration(value))
      }),
    })
  return found
}

/** Only where there is no other server there is nothing to be said: one that could not be called may have suffered. */
function withoutOthers({ others }: Evidence): Judged {
  if (others.length === 0) return { verdict: 'skipped', measured: 'there is no other server' }
  const more = others.length > 5 ? ', …' : ''
  return undecided(`not decided: none of ${others.slice(0, 5).join(', ')}${more} was called`)
}

const otherAssertions = (written: WrittenAssertions['others']): Assertion[] =>
  written === undefined ? [] : aboutCalls(written, (what) => `other servers, ${what}`, { isHit: false })

/** How a call ended, by the name that scenarios give it; undefined when well, or not at all. */
function errorOf(ending: string): string | undefined {
  if (ending === 'result' || ending === 'given up at the end') return undefined
  return /^error -?\d/.test(ending) ? 'rpc error' : ending
}

function errorAssertions(written: WrittenAssertions['errors']): Assertion[] {
  const { must = [], may, never = [] } = written ?? {}
  const about = (judge: (seen: ReadonlyMap<string, number>) => Judged) => (evidence: Evidence) => {
    if (evidence.calls === undefined) return undecided(NO_TRAFFIC)
    const seen = new Map<string, number>()
    for (const { isHit, ending } of evidence.calls) {
      const error = isHit ? errorOf(ending) : undefined
      if (error !== undefined) seen.set(error, (seen.get(error) ?? 0) + 1)
    }
    return judge(seen)
  }
  const times = (seen: ReadonlyMap<string, number>, name: string) => numbered(seen.get(name) ?? 0, 'time')
  return [
    ...must.map((name) => ({
      name: `agents see ${name}`,
      judge: about((seen) => passIf(seen.has(name), times(seen, name))),
    })),
    ...never.map((name) => ({
      name: `agents never see ${name}`,
      judge: about((seen) => passIf(!seen.has(name), times(seen, name))),
    })),
    ...(may === undefined
      ? []
      : [
          {
            name: `agents see no errors but ${[...new Set([...must, ...may])].join(', ')}`,
            judge: about((seen) => {
              const strange = [...seen.keys()].filter((name) => !must.includes(name) && !may.includes(name))
              return passIf(strange.length === 0, strange.length === 0 ? 'no other' : strange.join(', '))
            }),
          },
        ]),
  ]
}

type KnownFate = Exclude<keyof Fates, 'open'>

const fateKeys: Readonly<Record<string, KnownFate>> = { not_reached: 'notReached' }

function fateAssertions(written: WrittenAssertions['fates']): Assertion[] {
  return Object.entries(written ?? {}).flatMap(([fate, one]) => {
    if (one === undefined) return []
    const key = fateKeys[fate] ?? (fate as KnownFate)
    return {
      name: `faults ${fate.replace('_', ' ')}: ${countInWords(one)}`,
      judge({ fates: { [key]: least, open } }) {
        return rangeIsWithin({ least, most: least + open, open }, boundOf(one))
      },
    }
  })
}

function attempts(written: Bound): Assertion {
  const of = ({ counted: seen }: Evidence) =>
    seen === undefined ? undefined : seen.attempts / Math.max(1, seen.calls)
  return counted('attempts per call', written, of, ratio)
}

function recoveryAssertions(written: WrittenAssertions['recovery']): Assertion[] {
  const { firstGood, steady, p95: slowestCalls } = written ?? {}
  const about = (judge: (evidence: Evidence) => Judged) => (evidence: Evidence) =>
    evidence.calls === undefined ? undecided(NO_TRAFFIC) : judge(evidence)
  const found: Assertion[] = []
  if (firstGood !== undefined)
    found.push({
      name: `first good answer within ${formatDuration(firstGood)} of the faults' end`,
      judge: about((evidence) => {
        const { firstGoodMs: ms } = recoveryOf(evidence)
        return ms === undefined
          ? passIf(false, 'there was none')
          : passIf(ms <= firstGood, roundedDuration(ms))
      }),
    })
  if (steady !== undefined)
    found.push({
      name: `only good answers from ${formatDuration(steady)} after the faults' end on`,
      judge: about((evidence) => {
        const { steadyMs: ms } = recoveryOf(evidence)
        return ms === undefined
          ? passIf(false, 'not until the end')
          : passIf(ms <= steady, roundedDuration(ms))
      }),
    })
  if (slowestCalls !== undefined)
    found.push({
      name: `p95 of calls after the recovery: ${boundInWords(slowestCalls, formatDuration)}`,
      judge: about((evidence) => {
        const value = p95(recoveryOf(evidence).steady, Infinity, evidence.endedAt)
        if (value === undefined) return undecided('not decided: it has not recovered')
        return passIf(isWithin(value, slowestCalls), roundedDuration(value))
      }),
    })
  return found
}

const listsKept: Assertion = {
  name: '/mcp lists every tool that it listed before',
  judge({ unlisted }) {
    if (unlisted === undefined) return undecided('not decided: the list could not be read')
    return passIf(
      unlisted.length === 0,
      unlisted.length === 0 ? 'all' : `gone: ${unlisted.slice(0, 5).join(', ')}`,
    )
  },
}
