import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { size } from '../../units/size.ts'
import { globPattern } from './glob-schema.ts'

const globs = z.array(globPattern).max(1_000)

/** Settings of every server, however it is reached. */
export const serverSettings = {
  disabled: z.boolean().default(false).describe('Keeps the entry and does not run it.'),
  trusted: z.boolean().default(false).describe("Whether the server's own annotations may be believed."),
  tools: z
    .strictObject({
      include: globs.default(['*']).describe('Globs of tools to offer.'),
      exclude: globs.default([]).describe('Globs of tools to hide; wins over `include`.'),
    })
    .prefault({})
    .describe('Which of its tools exist for agents.'),
  timeouts: z
    .strictObject({
      connect: duration({ min: 1 }).default(5_000).describe('TCP and TLS, or the start of a process.'),
      discovery: duration({ min: 1 })
        .default(10_000)
        .describe(
          'Bounds discovery (handshake and lists together), each handshake for a caller, and the acknowledgement of a notification.',
        ),
      idle: duration({ min: 1 }).default(300_000).describe('Longest silence between two chunks of a reply.'),
    })
    .prefault({})
    .describe('How long its slow moments may last. Calls have the policy `attemptTimeout`.'),
  grace: duration()
    .default(60_000)
    .describe('How long the last-known tools stay listed after the server went down.'),
  refresh: duration({ min: 1_000 }).default(300_000).describe('How often its lists are fetched again.'),
  probe: duration({ min: 1_000 }).default(15_000).describe('How often it is pinged while it is up.'),
  maxReply: size()
    .default(16 * 1024 ** 2)
    .describe('Largest single message that it may send.'),
  maxList: size()
    .default(16 * 1024 ** 2)
    .describe(
      'Most bytes that are read and kept of each of its lists (tools, prompts, resources, templates), pages together; of a longer one, or one of more than 10,000 entries, the first part is offered.',
    ),
  deliver: z
    .enum(['protocol_error', 'tool_result'])
    .default('protocol_error')
    .describe(
      'How agents get errors of the gateway about its tool calls: as JSON-RPC errors, or as results that a model can read.',
    ),
}

const ofAnEditor = z.unknown().optional().describe('Of an editor; a gateway has no use for it.')

/** Keys that editors write beside a server and that change nothing about how it is reached. */
const editorKeys = {
  autoApprove: ofAnEditor,
  alwaysAllow: ofAnEditor,
  dev: ofAnEditor,
  gallery: ofAnEditor,
  version: ofAnEditor,
}

export const ignoredKeys = Object.keys(editorKeys) as (keyof typeof editorKeys)[]

/** Keys that are accepted beside the settings and that nobody reads. */
export const silentKeys = {
  transport: z
    .enum(['stdio', 'http', 'streamable-http', 'streamableHttp', 'sse'])
    .optional()
    .describe('Another name for `type`.'),
  ...editorKeys,
}

/** `given` without `silentKeys`. */
export function withoutSilent<Given extends object>(given: Given): Omit<Given, keyof typeof silentKeys> {
  return Object.fromEntries(Object.entries(given).filter(([key]) => !Object.hasOwn(silentKeys, key))) as Given
}
