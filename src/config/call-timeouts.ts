import type { Config } from './schema/schema.ts'
import { attemptTimeout as attemptTimeoutPolicy } from '../policies/attempt-timeout.ts'

type Policies = Config['policies']

/**
 * The policies of a config, with the `timeout` of each server as an override in front of those that the config has itself.
 * Where a call may take longer than the deadline of all calls, so may its deadline.
 */
export function policiesOf({ policies, mcpServers }: Pick<Config, 'policies' | 'mcpServers'>): Policies {
  const { deadline, attemptTimeout } = policies.defaults
  const own = Object.entries(mcpServers).flatMap(([server, { timeout }]): Policies['overrides'] => {
    if (timeout === undefined) return []
    const longer = deadline && deadline.total < timeout ? { deadline: { ...deadline, total: timeout } } : {}
    return [
      {
        match: { server },
        attemptTimeout: { ...(attemptTimeout || attemptTimeoutPolicy.schema.parse({})), timeout },
        ...longer,
      },
    ]
  })
  return own.length === 0 ? policies : { ...policies, overrides: [...own, ...policies.overrides] }
}
