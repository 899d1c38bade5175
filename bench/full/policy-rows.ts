import { policies } from '../../src/policies/index.ts'
import { oneServer, type GatewayConfig, type Subject } from '../subjects.ts'

/**
 * Settings under which a policy works on every call of the load and ends none, where its defaults are others or there are
 * none. A policy that stands here not is measured with its defaults.
 */
const settings: Readonly<Record<string, unknown>> = {
  degrade: { lastKnownGood: {} },
  hedge: { after: '10s' },
  rateLimit: { rate: '1000000/s' },
  adaptiveConcurrency: { initial: 200, min: 200, max: 200 },
}

/** Every policy is off but that one; without a name all are. */
export function onlyPolicy(name?: string): GatewayConfig {
  const defaults = Object.keys(policies).map((policy) => [
    policy,
    policy === name && (settings[policy] ?? {}),
  ])
  return {
    policies: {
      defaults: Object.fromEntries(defaults) as object,
      // Some work on calls only that are known to read.
      overrides: [{ match: {}, effect: 'read_only' }],
    },
  }
}

/** The row that each policy is compared with, then a row for each, in their order. */
export const policyRows: readonly Subject[] = [
  oneServer('no-policy', 'no policy', onlyPolicy()),
  ...Object.keys(policies).map((name) => oneServer(name, name, onlyPolicy(name))),
]
