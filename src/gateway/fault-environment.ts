import type { RawReply, World } from '../chaos/fault.ts'
import type { Call, Outcome } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError, type Reason } from '../mesh/errors.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { readdress } from '../registry/readdress.ts'
import { ReplyHeaders } from '../upstreams/http/http-headers.ts'
import { readReply } from '../upstreams/http/http-status.ts'

/** What faults can do outside of the call that they hit, to the servers of the generation in force. */
export function worldOf(current: () => GatewayGeneration, clock: Clock): World {
  const find = (server: string) => current().servers.get(server)
  return {
    kindOf({ server, caller, replica }) {
      const found = find(server)
      return found && { transport: found.config.type, era: found.eraFor(caller, replica) }
    },
    outputSchemaOf: (server, tool) => find(server)?.facts(tool)?.outputSchema,
    kill: (server, signal) => find(server)?.signal(signal) === true,
    loseSession(server, caller) {
      const links = find(server)?.links.all(caller) ?? []
      return links.map((link) => link.loseSession?.() === true).includes(true)
    },
    tell(server, message) {
      // An answer belongs to a call: outside of one there is nobody to give it to.
      if (!('method' in message.value)) return
      for (const caller of find(server)?.links.callers() ?? []) caller.receive(server, message)
    },
    refresh: (server) => find(server)?.refresh(),
    sendTo(call, server) {
      const other = find(server)
      const readdressed = call.tool === undefined ? undefined : readdress(call, other, call.tool)
      return readdressed && other?.send(readdressed)
    },
    read(call, raw) {
      const limit = find(call.server)?.config.maxReply
      return limit !== undefined && Buffer.byteLength(raw.body) > limit
        ? failed('reply_too_large', `the reply is larger than ${limit} bytes`)
        : read(call, raw, clock.wall())
    },
  }
}

function read(call: Call, { status, headers, body }: RawReply, wallMs: number): Outcome {
  const raw = Object.entries(headers).flatMap(([name, value]) => [Buffer.from(name), Buffer.from(value)])
  const reading = readReply(call.id, status, new ReplyHeaders(raw), body, { hasSession: false, wallMs })
  return reading.kind === 'suspected_loss' ? reading.otherwise : reading
}

const failed = (reason: Reason, message: string): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, message, { sent: true }),
})
