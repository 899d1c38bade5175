/** Verdicts on a run, the best first. */
export const verdicts = ['passed', 'held (weak)', 'failed', 'no evidence'] as const
export type Verdict = (typeof verdicts)[number]

/** Reasons why a run proves nothing, with their texts. */
export const reasonTexts = {
  no_effective_fault: 'a fault took effect fewer than 5 times, or a fault of a process or server never',
  not_overlapping: 'the treatment had calls in less than 80 % of the seconds in which a fault acted',
  below_floor: 'the treatment had fewer than 30 calls in a stage',
  unsteady_before: 'the steady state did not hold before the faults',
  control_failed_too: 'the calls without faults broke a claim as well',
  engine_error: 'the fault engine failed',
  journal_gap: 'the run could not continue, or its record lacks samples',
  loose_tolerance: 'no reachable value breaks the claims, or the gate',
  stopped: 'somebody stopped the run, or the run ended without a result',
  undecided: 'the run measured too little for a claim, or for the difference of its arms',
  unsound: 'the measurement has a flaw, such as arms without their planned shares',
  not_run: 'an experiment of the GameDay was skipped, or not reached',
} as const satisfies Readonly<Record<string, string>>

export type Reason = keyof typeof reasonTexts
export const reasonNames = Object.keys(reasonTexts) as readonly Reason[] as readonly [Reason, ...Reason[]]
