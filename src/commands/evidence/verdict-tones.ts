import type { Verdict } from '../../evidence/verdict-names.ts'
import type { Tone } from '../../telemetry/colours.ts'

/** Colours of verdicts. */
export const verdictTones: Readonly<Record<Verdict, Tone>> = {
  passed: 'good',
  'held (weak)': 'doubtful',
  failed: 'bad',
  'no evidence': 'doubtful',
}
