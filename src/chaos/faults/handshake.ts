import { z } from 'zod'
import type { Call, Layer, Outcome } from '../../mesh/call.ts'
import { errorText, INTERNAL_ERROR, METHOD_NOT_FOUND } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import { resultIn, type FaultType, type Injection } from '../fault.ts'
import { givenUp, json } from './shared.ts'

/**
 * Requests with which the gateway begins an upstream session: `initialize` in the legacy era, `server/discover` in the
 * modern era.
 */
const handshakes = ['initialize', 'server/discover']

/** The common fields of handshake faults. On side client, the gateway is the server of the handshake. */
const ofHandshakes = { family: 'handshake', methods: handshakes, sides: ['upstream', 'client'] } as const

const words = z.string().max(4_096)

/** Returns a layer that answers requests with an error; the server does not get them. */
const answering =
  ({ code, message }: { readonly code: number; readonly message: string }, injection: Injection): Layer =>
  () =>
  (call) => {
    injection.note({ code })
    return Promise.resolve(injection.reply(call, json(errorText(call.id, code, message))))
  }

/** Returns a layer that sends a request, and holds the answer back until `holdMs` milliseconds after the request. */
const silent =
  (holdMs: number, injection: Injection): Layer =>
  (next) =>
  (call) => {
    injection.note({ holdMs })
    return Promise.all([next(call), injection.pause(holdMs, call)]).then(([outcome, how]) =>
      how === 'aborted' ? givenUp(call) : outcome,
    )
  }

/** Returns a layer that changes the result of a handshake. */
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
        injection.notApplicable('the server gave no result for the handshake')
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
  use: 'To test calls to a server that accepts connections but refuses sessions, for example while starting.',
  seen: 'Nothing while upstream sessions last; BW_UPSTREAM_REFUSED for agents in need of a new session. With `side: client`, the error.',
  containedBy: {
    policies: ['breaker'],
    how: 'The last-known lists stay, and discovery tries again at growing intervals. A breaker, where configured, stops calls that need a handshake.',
  },
  example: { name: 'no-handshake', rate: 0.5, ttl: '10m', match: { server: 'search' }, code: -32603 },
  layer: answering,
}

const holdSchema = z.strictObject({
  hold: duration({ min: 1 }).default(60_000).describe('How long the answer is held back; then it arrives.'),
})

const hang: FaultType<z.output<typeof holdSchema>> = {
  schema: holdSchema,
  ...ofHandshakes,
  about: 'A server accepts the handshake and does not answer.',
  use: 'To check that a hanging handshake ends, and delays neither other servers nor the start.',
  seen: 'Nothing while upstream sessions last; a timeout for agents in need of a new session. With `side: client`, no answer.',
  containedBy: {
    policies: ['attemptTimeout', 'deadline'],
    how: '`timeouts.discovery` of the server ends the handshake (for a process that has written nothing, `timeouts.start`). Each call waiting for the handshake has its own timeout.',
  },
  example: { name: 'handshake-hangs', rate: 0.5, ttl: '10m', match: { server: 'search' }, hold: '60s' },
  layer: ({ hold }, injection) => silent(hold, injection),
}

const versionSchema = z.strictObject({
  version: z
    .string()
    .max(64)
    .default('1999-01-01')
    .describe('The version in the answer; in the modern era the only supported version.'),
})

const version: FaultType<z.output<typeof versionSchema>> = {
  schema: versionSchema,
  ...ofHandshakes,
  about: 'A server answers the handshake with a protocol version nobody asked for.',
  use: 'To test the update of a server to a protocol version that the gateway does not speak.',
  seen: 'Nothing while upstream sessions last; BW_UPSTREAM_REFUSED for agents in need of a new session. With `side: client`, the wrong version.',
  containedBy: {
    policies: ['breaker'],
    how: "The gateway opens no session in an unknown version. Agents keep the last-known tools for the server's `grace`, and a breaker stops their calls.",
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
  about: 'A server declares no capabilities in the handshake.',
  use: 'To test the tools of a server that no longer claims to have any.',
  seen: 'Nothing while upstream sessions last; then the tools of the server are gone from the lists. With `side: client`, an empty list of capabilities.',
  containedBy: {
    policies: [],
    how: "The gateway believes a server's own capabilities. When the fault ends, a new handshake brings the tools back; a process shared by callers has to be restarted first.",
  },
  example: { name: 'no-capabilities', rate: 0.5, ttl: '10m', match: { server: 'search' } },
  layer: (_, injection) =>
    saying(injection, (result) => ({ ...result, capabilities: {} }), { capabilities: 'none' }),
}

/**
 * The gateway pings servers with known lists (`probe`), and sessions that look lost; the gateway answers agents' pings
 * itself.
 */
const ofPings = { family: 'handshake', methods: ['ping'], sides: ['upstream', 'client'] } as const

const unanswered: FaultType<z.output<typeof holdSchema>> = {
  schema: holdSchema,
  ...ofPings,
  about: 'A server does not answer a ping, or in the modern era `server/discover`.',
  use: 'To see how the gateway treats a server that is alive but answers no ping.',
  seen: 'The server counts as down after `timeouts.discovery`; its tools stay listed, and calls of its tools go through. With `side: client`, no answer.',
  containedBy: {
    policies: [],
    how: 'A server that is down keeps its last-known lists for its grace period; calls do not wait for pings.',
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
  about: 'A server answers a ping, or in the modern era `server/discover`, with an error.',
  use: 'To check that a server without ping support still counts as up.',
  seen: 'Nothing. With `side: client`, the error.',
  containedBy: { policies: [], how: 'Any answer to a ping is a sign of life, even an error.' },
  example: { name: 'ping-error', rate: 0.5, ttl: '10m', match: { server: 'search' }, code: -32601 },
  layer: answering,
}

/** Faults of the handshake of a session, and of pings. */
export const handshakeFaults = {
  'initialize.refused': refused,
  'initialize.hang': hang,
  'initialize.version': version,
  'initialize.no_capabilities': noCapabilities,
  'ping.unanswered': unanswered,
  'ping.error': pingError,
}
