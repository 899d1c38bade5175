import type { Config } from './schema/schema.ts'
import { attemptTimeout as attemptTimeoutPolicy } from '../policies/attempt-timeout.ts'

type Policies = Config['policies']

/**
 * Returns the policies of a config, with each server's `timeout` as an override before the config's own overrides. If a
 * server's `timeout` is longer than the default deadline, the override also extends the deadline of its calls.
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
