/** Matcher of the chosen plans. */
export const PLAN = '{plan=~"$plan"}'

const LAST = 'breakwater_plan_last_run_timestamp_seconds'

/**
 * Returns the last runs of plans with these verdicts, as the times of their ends. Each gateway knows only its own runs,
 * so the last run of a plan is the latest of all gateways.
 */
export const lastRuns = (verdict: string) =>
  `max by (plan, kind, verdict, reasons, state) (${LAST}{plan=~"$plan",verdict="${verdict}"}` +
  ` == on (plan, kind) group_left () max by (plan, kind) (${LAST}${PLAN}))`

/** Returns a value of each plan: the highest of all gateways. */
export const ofPlan = (metric: string) => `max by (plan, kind) (breakwater_plan_${metric}${PLAN})`
