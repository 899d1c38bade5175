import { z } from 'zod'
import { secrets } from '../secrets/secrets.ts'
import { serverSettings, silentKeys, withoutSilent } from './server-settings.ts'

const variableName = z.string().regex(/^[^=\0]+$/, 'expected the name of an environment variable')

/** Text that a process can be given. */
const text = z.string().refine((value) => !value.includes('\0'), 'expected text without NUL')

/** A server that the gateway runs as a child process. */
export const stdioServer = z
  .strictObject({
    type: z.literal('stdio').default('stdio').describe('Follows from `command`.'),
    command: text.min(1).describe('Program to start.'),
    args: z.array(text).default([]).register(secrets, { secrecy: 'args' }).describe('Its arguments.'),
    env: z
      .record(variableName, text)
      .default({})
      .register(secrets, { secrecy: 'text' })
      .describe('Added to a minimal environment (PATH, HOME, …).'),
    cwd: text.min(1).optional().describe("Working folder; the gateway's own unless given."),
    sharing: z
      .enum(['shared', 'per_session'])
      .default('shared')
      .describe('One process for all sessions, or one for each. Roots need one for each.'),
    era: z
      .enum(['auto', 'legacy', 'modern'])
      .default('auto')
      .describe(
        'Versions of the protocol to speak: up to 2025-11-25 (`legacy`), 2026-07-28 (`modern`), or found out (`auto`; the newer one of a program that speaks both).',
      ),
    processes: z
      .strictObject({
        max: z.number().int().min(1).max(10_000).default(100).describe('At once, over all sessions.'),
        perClient: z
          .number()
          .int()
          .min(1)
          .max(10_000)
          .optional()
          .describe('Of them for one client, told apart by its address. Default: half of `max`.'),
      })
      .prefault({})
      .describe('How many processes `sharing: per_session` may start; a session too many is refused.'),
    ...serverSettings,
    ...silentKeys,
  })
  .meta({ title: 'stdio server', description: 'A server that the gateway runs as a child process.' })
  .transform(withoutSilent)

export type StdioServerConfig = z.output<typeof stdioServer>
