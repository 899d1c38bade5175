import { config, type Config } from '../config/schema/schema.ts'
import { policies as registry } from '../policies/index.ts'

/** The policies of a run, with their name in reports. */
export interface PolicyChoice {
  readonly name: string
  readonly policies: Config['policies']
  /** A named policy set; default: the policies without a name. */
  readonly set?: string
}

/**
 * Returns the policies of a config for settings as written, with all defaults filled in. Throws a zod error for invalid
 * settings.
 */
export const policiesOf = (written: object): Config['policies'] =>
  config.parse({ policies: written }).policies

const off = Object.fromEntries(Object.keys(registry).map((name) => [name, false]))

/** No policies: each call is sent once, and its outcome is returned unchanged. */
export const none: PolicyChoice = { name: 'none', policies: policiesOf({ defaults: off }) }

/** Returns a choice with only these policies. */
export const only = (name: string, defaults: object): PolicyChoice => ({
  name,
  policies: policiesOf({ defaults: { ...off, ...defaults } }),
})

export const byDefault: PolicyChoice = { name: 'default', policies: policiesOf({}) }

/** The names of the default policies. */
export const inForce: readonly string[] = Object.entries(byDefault.policies.defaults).flatMap(
  ([name, settings]) => (settings === undefined || settings === false ? [] : [name]),
)

/** Returns the default policies without the named policy. */
export const without = (policy: string): PolicyChoice => ({
  name: `without ${policy}`,
  policies: policiesOf({ defaults: { [policy]: false } }),
})

/** Returns the default policies with some settings replaced. */
export const withSettings = (name: string, defaults: object): PolicyChoice => ({
  name,
  policies: policiesOf({ defaults }),
})
