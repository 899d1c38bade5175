import type { FaultEnvironment, RawReply, ServerKind } from '../chaos/fault.ts'
import type { Call, Outcome } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { ReplyHeaders, readReply } from '../upstreams/http/http-status.ts'
import { transportError } from '../upstreams/http/http-reply.ts'
import type { SimulatedServer } from './servers.ts'

export const serverKind: ServerKind = {
  transport: 'http',
  era: 'modern',
  address: { isSecure: true, isNamed: true },
}

/**
 * Returns the operations that faults use on simulated servers outside calls. Simulated servers answer like HTTP servers
 * of the modern era: they have no process and no session, so faults of processes and sessions are refused.
 */
export function environmentOf(servers: ReadonlyMap<string, SimulatedServer>, clock: Clock): FaultEnvironment {
  return {
    kindOf: () => serverKind,
    outputSchemaOf: (server, tool) => servers.get(server)?.facts(tool)?.outputSchema,
    signal: () => false,
    crash: () => undefined,
    write: () => undefined,
    loseSession: () => false,
    tell: () => undefined,
    refresh: () => undefined,
    beginAttempt({ record }, sent) {
      record.attempts++
      record.replica = 0
      record.sent ||= sent
      return true
    },
    suspect: () => undefined,
    unreachable: () => transportError({ code: 'ECONNREFUSED', message: '', name: 'Error' }, false),
    failToConnect: (call) =>
      Promise.resolve(gatewayError('upstream_unavailable', `cannot connect to ${call.server}`)),
    sendTo: (call, server) => servers.get(server)?.send(call),
    read: (call, reply) => read(call, reply, clock.wall()),
  }
}

function read(call: Call, { status, headers, body }: RawReply, wallMs: number): Outcome {
  const raw = Object.entries(headers).flatMap(([name, value]) => [Buffer.from(name), Buffer.from(value)])
  const reading = readReply(call.id, status, new ReplyHeaders(raw), body, { hasSession: false, wallMs })
  return reading.kind === 'suspected_loss' ? reading.otherwise : reading
}
