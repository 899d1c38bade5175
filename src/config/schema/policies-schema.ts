import { z } from 'zod'
import { policies } from '../../policies/index.ts'
import { globPattern } from './glob-schema.ts'

type Policies = typeof policies
type Setting<Name extends keyof Policies> = z.ZodUnion<[Policies[Name]['schema'], z.ZodLiteral<false>]>
type Settings = { [Name in keyof Policies]: z.ZodOptional<Setting<Name>> }

/** What stands under the name of each policy: its settings, or `false`. */
const choices = Object.entries(policies).map(([name, policy]) => {
  const { schema } = policy
  const setting = z.union([schema, z.literal(false)])
  return { name, policy, setting: setting.describe(schema.description ?? '').meta({ id: `Policy_${name}` }) }
})

/** A key for every registered policy. */
function settings(inForce: boolean): Settings {
  const shape = choices.map(({ name, policy, setting }) => {
    const byDefault = inForce && !('optIn' in policy)
    return [name, byDefault ? setting.prefault({}) : setting.optional()]
  })
  return Object.fromEntries(shape) as Settings
}

const setName = z
  .string()
  .regex(
    /^(?!default$)[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$/,
    'expected 1 to 64 of A-Z a-z 0-9 _ -, and not "default"',
  )

const effect = z
  .enum(['read_only', 'idempotent', 'write'])
  .describe('What running these tools again does: decides what may be retried, hedged and kept.')

const match = z
  .strictObject({
    server: globPattern.optional().describe('Glob over server names.'),
    tool: globPattern.optional().describe('Glob over tool names, as their server knows them.'),
    method: globPattern.optional().describe('Glob over JSON-RPC methods.'),
  })
  .describe('What an override applies to: everything that all of these globs match.')

/** The block `policies`. */
export const mesh = z
  .strictObject({
    defaults: z.strictObject(settings(true)).prefault({}).describe('For every call.'),
    overrides: z
      .array(z.strictObject({ match, effect: effect.optional(), ...settings(false) }))
      .max(1_000)
      .default([])
      .describe('For some calls. Of those that match, the last that sets a policy decides about it.'),
    sets: z
      .record(setName, z.strictObject(settings(false)))
      .default({})
      .describe('Alternatives by name. What a set says of a policy wins over defaults and overrides.'),
  })
  .prefault({})
  .describe('Resilience policies, by name; `false` switches one off.')
