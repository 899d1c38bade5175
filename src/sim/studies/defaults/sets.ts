import { byDefault, only, type PolicyChoice } from '../../policy-choices.ts'

/** A budget without effective limits. */
const FREE = { ratio: 1, costlyRatio: 1, floor: 1_000, concurrency: 1, leastConcurrent: 10_000 }

/**
 * The defaults of others, as far as our policies can express them: the numbers come from the named sources (as of
 * 2026). They have `waitForProof: false`, because only Breakwater waits for the success of another call before a retry.
 */
export const peers: Readonly<Record<string, object>> = {
  // outlier_detection.proto and route_components.proto: no retries until a policy names some; then 1, 25 ms to 250 ms,
  // 3 at a time. A failing host is ejected, but never the only host.
  envoy: {
    retry: {
      maxRetries: 1,
      base: '25ms',
      cap: '250ms',
      waitForProof: false,
      budget: { ...FREE, concurrency: 0.2, leastConcurrent: 3 },
    },
    route: { affinity: 'none' },
    bulkhead: { concurrent: 1_024, perTool: 1_024, queue: 1_024 },
  },
  // Polly v8: RetryConstants, CircuitBreakerConstants, and the standard resilience handler of .NET: attempts of 10 s,
  // 30 s in total.
  polly: {
    deadline: { total: '30s' },
    retry: { maxRetries: 3, base: '2s', cap: '10s', waitForProof: false, budget: FREE },
    breaker: {
      window: '30s',
      ratio: 0.1,
      minimum: 100,
      consecutive: 0,
      open: '5s',
      maxOpen: '5s',
      jitter: 0,
    },
    attemptTimeout: { timeout: '10s' },
  },
  // CircuitBreakerConfig (a window of 100 calls, here 100 s) and RetryConfig.
  resilience4j: {
    retry: { maxRetries: 2, base: '500ms', cap: '500ms', waitForProof: false, budget: FREE },
    breaker: {
      window: '60s',
      ratio: 0.5,
      minimum: 100,
      consecutive: 0,
      open: '60s',
      maxOpen: '60s',
      jitter: 0,
      probes: 10,
    },
  },
  // FailureAccrualFactory (5 in a row, or a success rate under 80 % in 30 s) and RetryBudget (20 %, 10/s).
  finagle: {
    retry: {
      maxRetries: 10,
      base: '1ms',
      cap: '1ms',
      waitForProof: false,
      budget: { ...FREE, ratio: 0.2, costlyRatio: 0.2, floor: 10 },
    },
    breaker: {
      consecutive: 5,
      ratio: 0.2,
      minimum: 5,
      window: '30s',
      open: '5s',
      maxOpen: '300s',
      jitter: 0.5,
    },
    route: { affinity: 'none', ejection: false },
  },
  // A6 and connection-backoff.md: no retries until configured. Calls wait during a connection attempt, not after a
  // failed attempt.
  grpc: { route: { affinity: 'none', ejection: false } },
  // The policy controller's failure accrual (7 in a row, 1 s to 60 s), opt-in per service; no retries until a service
  // opts in.
  linkerd: {
    breaker: { consecutive: 7, ratio: 1, minimum: 1_000_000, open: '1s', maxOpen: '60s', jitter: 0.5 },
    route: { affinity: 'none', ejection: false },
  },
}

/** Retries and a breaker per tool, as in most gateways, and in Breakwater before the gate. */
export const breakers = only('breakers', {
  deadline: {},
  retry: {
    maxRetries: 2,
    cap: '2s',
    waitForProof: false,
    budget: { ratio: 0.2, costlyRatio: 0.2, floor: 5, concurrency: 0.2, leastConcurrent: 3 },
  },
  bulkhead: { concurrent: 64, queue: 64, maxWait: '5s' },
  route: {},
  breaker: {},
  verdict: {},
})

/** The set without policies except the deadline, so all sets give up a call at the same time. */
export const none = only('none', { deadline: {} })

/** The default policies; the tables call them `default`. */
export const defaults = byDefault

export const sets: readonly PolicyChoice[] = [
  none,
  defaults,
  breakers,
  ...Object.entries(peers).map(([name, settings]) => only(name, { deadline: {}, ...settings })),
]
