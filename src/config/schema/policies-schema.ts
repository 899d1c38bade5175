import { z } from 'zod'
import { policies } from '../../policies/index.ts'
import { globPattern } from './glob-schema.ts'

type Policies = typeof policies
type Setting<Name extends keyof Policies> = z.ZodUnion<[Policies[Name]['schema'], z.ZodLiteral<false>]>
type Settings = { [Name in keyof Policies]: z.ZodOptional<Setting<Name>> }

/** A key for every registered policy, which holds its settings or `false`. */
function settings(inForce: boolean): Settings {
  const shape = Object.entries(policies).map(([name, { schema }]) => {
    const setting = z.union([schema, z.literal(false)]).describe(schema.description ?? '')
    // A policy that needs no settings is in force unless switched off; one that needs some waits for them.
    const byDefault = inForce && schema.safeParse({}).success
    return [name, byDefault ? setting.prefault({}) : setting.optional()]
  })
  return Object.fromEntries(shape) as Settings
}

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
      .array(z.strictObject({ match, ...settings(false) }))
      .max(1_000)
      .default([])
      .describe('For some calls. Of those that match, the last that sets a policy decides about it.'),
  })
  .prefault({})
  .describe('Resilience policies, by name; `false` switches one off.')
