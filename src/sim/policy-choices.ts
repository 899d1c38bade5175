import { config, type Config } from '../config/schema/schema.ts'
import { policies as registry } from '../policies/index.ts'

/** The policies of a run, under the name that reports call them by. */
export interface PolicyChoice {
  readonly name: string
  readonly policies: Config['policies']
  /** A named set of them; the ones without a name unless given. */
  readonly set?: string
}

/** Settings as a config has them, with all defaults filled in. Throws what zod does. */
export const policiesOf = (written: object): Config['policies'] =>
  config.parse({ policies: written }).policies

const off = Object.fromEntries(Object.keys(registry).map((name) => [name, false]))

/** No policy at all: each call is sent once, and what comes is told. */
export const none: PolicyChoice = { name: 'none', policies: policiesOf({ defaults: off }) }

/** These policies, and no others. */
export const only = (name: string, defaults: object): PolicyChoice => ({
  name,
  policies: policiesOf({ defaults: { ...off, ...defaults } }),
})

/** The policies that are in force by default. */
export const byDefault: PolicyChoice = { name: 'default', policies: policiesOf({}) }

/** The names of those that are in force by default. */
export const inForce: readonly string[] = Object.entries(byDefault.policies.defaults).flatMap(
  ([name, settings]) => (settings === undefined || settings === false ? [] : [name]),
)

/** The policies that are in force by default, without one of them. */
export const without = (policy: string): PolicyChoice => ({
  name: `without ${policy}`,
  policies: policiesOf({ defaults: { [policy]: false } }),
})

/** The policies that are in force by default, with some settings replaced. */
export const withSettings = (name: string, defaults: object): PolicyChoice => ({
  name,
  policies: policiesOf({ defaults }),
})
