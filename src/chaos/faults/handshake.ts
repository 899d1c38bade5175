import { z } from 'zod'
import type { Call, Layer, Outcome } from '../../mesh/call.ts'
import { errorText, INTERNAL_ERROR, METHOD_NOT_FOUND } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import { resultIn, type FaultType, type Injection } from '../fault.ts'
import { givenUp, json } from './shared.ts'

/** By which the gateway begins an upstream session: `initialize` in the legacy era, `server/discover` in the modern one. */
const handshakes = ['initialize', 'server/discover']

/** The common fields of faults of the handshake. Towards agents, the gateway is the server of the handshake. */
const ofHandshakes = { family: 'handshake', methods: handshakes, sides: ['upstream', 'client'] } as const

const words = z.string().max(4_096)

/** A layer that answers with an error; the server gets nothing. */
const answering =
  ({ code, message }: { readonly code: number; readonly message: string }, injection: Injection): Layer =>
  () =>
  (call) => {
    injection.note({ code })
    return Promise.resolve(injection.reply(call, json(errorText(call.id, code, message))))
  }

/** A layer that sends a request, and keeps its answer back for `holdMs`. */
const silent =
  (holdMs: number, injection: Injection): Layer =>
  (next) =>
  (call) => {
    injection.note({ holdMs })
    return Promise.all([next(call), injection.pause(holdMs, call)]).then(([outcome, how]) =>
      how === 'aborted' ? givenUp(call) : outcome,
    )
  }

/** A layer that changes what a server says of itself. */
const saying =
  (
    injection: Injection,
    change: (result: Readonly<Record<string, unknown>>, call: Call) => Readonly<Record<string, unknown>>,
    note: Readonly<Record<string, unknown>>,
  ): Layer =>
  (next) =>
  (call) =>
    next(call).then((outcome): Outcome => {
      const result = resultIn(outcome)
      if (result === undefined) {
        injection.notApplicable('the server did not introduce itself')
        return outcome
      }
      injection.note(note)
      return injection.change(outcome, change(result, call))
    })

const refusedSchema = z.strictObject({
  code: z.int().default(INTERNAL_ERROR).describe('The JSON-RPC code.'),
  message: words.default('Server is starting').describe('The message.'),
})

const refused: FaultType<z.output<typeof refusedSchema>> = {
  schema: refusedSchema,
  ...ofHandshakes,
  about: 'A server refuses the handshake with an error.',
  use: 'To see what becomes of calls whose server takes connections and lets nobody in, as while it starts.',
  seen: 'Nothing while upstream sessions last; BW_UPSTREAM_REFUSED for who needs a new one. Towards agents, the error.',
  containedBy: {
    policies: ['breaker'],
    how: 'The last-known lists stay, discovery comes back at growing intervals, and a breaker, where one is configured, stops calls that need a handshake.',
  },
  example: { name: 'no-handshake', rate: 0.5, ttl: '10m', match: { server: 'search' }, code: -32603 },
  layer: answering,
}

const holdSchema = z.strictObject({
  hold: duration({ min: 1 }).default(60_000).describe('How long no answer comes; then it does.'),
})

const hang: FaultType<z.output<typeof holdSchema>> = {
  schema: holdSchema,
  ...ofHandshakes,
  about: 'A server takes the handshake and does not answer it.',
  use: 'To check that a handshake that hangs has an end, and holds up neither others nor the start.',
  seen: 'Nothing while upstream sessions last; a timeout for who needs a new one. Towards agents, silence.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: '`timeouts.discovery` of the server ends the handshake (with a process that has written nothing `timeouts.start`), and each call that waits for it has a time of its own.',
  },
  example: { name: 'handshake-hangs', rate: 0.5, ttl: '10m', match: { server: 'search' }, hold: '60s' },
  layer: ({ hold }, injection) => silent(hold, injection),
}

const versionSchema = z.strictObject({
  version: z
    .string()
    .max(64)
    .default('1999-01-01')
    .describe('The version that it names; in the modern era the only one that it supports.'),
})

const version: FaultType<z.output<typeof versionSchema>> = {
  schema: versionSchema,
  ...ofHandshakes,
  about: 'A server answers the handshake with a version of the protocol that nobody asked for.',
  use: 'To test a server that was replaced by one of a version that the gateway does not speak.',
  seen: 'Nothing while upstream sessions last; BW_UPSTREAM_REFUSED for who needs a new one. Towards agents, that version.',
  containedBy: {
    policies: ['breaker'],
    how: 'The gateway goes on in no version that it does not know; what it knew of the server stays for its grace period.',
  },
  example: {
    name: 'handshake-version',
    rate: 0.5,
    ttl: '10m',
    match: { server: 'search' },
    version: '1999-01-01',
  },
  layer: (config, injection) =>
    saying(
      injection,
      (result, { method }) =>
        method === 'initialize'
          ? { ...result, protocolVersion: config.version }
          : { ...result, supportedVersions: [config.version] },
      { version: config.version },
    ),
}

const noneSchema = z.strictObject({})

const noCapabilities: FaultType<z.output<typeof noneSchema>> = {
  schema: noneSchema,
  ...ofHandshakes,
  about: 'A server says in the handshake that it can do nothing.',
  use: 'To see what becomes of the tools of a server that no longer claims to have any.',
  seen: 'Nothing while upstream sessions last; then the tools of the server are gone from the lists. Towards agents, the list of capabilities is empty.',
  containedBy: {
    policies: [],
    how: 'The gateway believes what a server says of itself. When the fault ends, a new handshake brings the tools back; a process that callers share has to be restarted for it.',
  },
  example: { name: 'no-capabilities', rate: 0.5, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) =>
    saying(injection, (result) => ({ ...result, capabilities: {} }), { capabilities: 'none' }),
}

/**
 * The gateway pings servers whose lists it knows (`probe`), and sessions that look as if they were lost; it answers the pings of
 * agents by itself.
 */
const ofPings = { family: 'handshake', methods: ['ping'], sides: ['upstream', 'client'] } as const

const unanswered: FaultType<z.output<typeof holdSchema>> = {
  schema: holdSchema,
  ...ofPings,
  about: 'A server does not answer a ping; in the modern era, which has none, `server/discover`.',
  use: 'To see what the gateway makes of a server that is alive and does not say so.',
  seen: 'The server counts as down after `timeouts.discovery`; its tools stay listed, and calls of them go through. Towards agents, silence.',
  containedBy: {
    policies: [],
    how: 'A server that is down keeps its last-known lists for its grace period; calls are not held back by a ping.',
  },
  example: { name: 'no-pong', rate: 0.5, ttl: '10m', match: { server: 'search' }, hold: '60s' },
  layer: ({ hold }, injection) => silent(hold, injection),
}

const pingErrorSchema = z.strictObject({
  code: z.int().default(METHOD_NOT_FOUND).describe('The JSON-RPC code.'),
  message: words.default('Method not found').describe('The message.'),
})

const pingError: FaultType<z.output<typeof pingErrorSchema>> = {
  schema: pingErrorSchema,
  ...ofPings,
  about: 'A server answers a ping with an error; in the modern era, which has none, `server/discover`.',
  use: 'To check that a server that does not know pings is taken to be there all the same.',
  seen: 'Nothing. Towards agents, the error.',
  containedBy: { policies: [], how: 'Any answer to a ping is a sign of life, an error as well.' },
  example: { name: 'ping-error', rate: 0.5, ttl: '10m', match: { server: 'search' }, code: -32601 },
  layer: answering,
}

/** Faults of the start of a session, and of the ping that asks whether the session goes on. */
export const handshakeFaults = {
  'initialize.refused': refused,
  'initialize.hang': hang,
  'initialize.version': version,
  'initialize.no_capabilities': noCapabilities,
  'ping.unanswered': unanswered,
  'ping.error': pingError,
}
