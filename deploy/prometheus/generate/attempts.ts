import {
  attemptRate,
  levels,
  ratio,
  recordedRate,
  windows,
  type Level,
  type Share,
  type Window,
} from './measures.ts'
import type { Rule, RuleGroup } from './rule.ts'

const shares: readonly Share[] = ['eligible', 'returned', 'good', 'unchecked']

/** Windows computed from the counters themselves. */
const raw: ReadonlySet<Window> = new Set(['5m', '30m', '1h'])

/** Windows of the visible ratios; burn rates need all windows. */
const shown: readonly Window[] = ['5m', '30m', '1h', '24h']

/** Value of attempts at tools: availability × correctness = effective tool availability, and its burn rates. */
export const attemptGroups: readonly RuleGroup[] = levels.map((level) => ({
  name: `breakwater-eta-${level.name.replace('_', '-')}`,
  rules: [
    ...shares.map((share) => ({
      record: recordedRate(share, level),
      expr:
        share === 'eligible'
          ? attemptRate(share, level, '5m')
          : `${attemptRate(share, level, '5m')} or 0 * ${recordedRate('eligible', level)}`,
    })),
    ...shown.flatMap((window) => ratios(level, window)),
    ...windows.map((window) => burn(level, window)),
    // Alerts ignore tools with too few attempts.
    {
      record: `${level.name}:breakwater_attempts_eligible:increase1h`,
      expr: `${attemptRate('eligible', level, '1h')} * 3600`,
    },
  ],
}))

/** Attempts per second. Long windows average 5-minute rates, because a raw rate would read every sample of days. */
function rateOf(share: Share, level: Level, window: Window): string {
  if (window === '5m') return recordedRate(share, level)
  return raw.has(window)
    ? attemptRate(share, level, window)
    : `avg_over_time(${recordedRate(share, level)}[${window}])`
}

function ratios(level: Level, window: Window): Rule[] {
  const of = (share: Share) => rateOf(share, level, window)
  const record = (measure: string) => `${level.name}:breakwater_${measure}:ratio_rate${window}`
  return [
    { record: record('availability'), expr: ratio(of('returned'), of('eligible')) },
    { record: record('correctness'), expr: ratio(of('good'), of('returned')) },
    { record: record('eta'), expr: ratio(of('good'), of('eligible')) },
    { record: record('unchecked'), expr: ratio(of('unchecked'), of('returned')) },
  ]
}

/** Burn rate of the error budget: 1 uses up the budget exactly within its period. */
function burn(level: Level, window: Window): Rule {
  const eta = ratio(rateOf('good', level, window), rateOf('eligible', level, window))
  return {
    record: `${level.name}:breakwater_eta_burn:rate${window}`,
    expr: `(1 - ${eta}) / (1 - scalar(breakwater:eta_objective))`,
  }
}
