import type { RawReply, World } from '../../src/chaos/fault.ts'
import type { Call, Message, Outcome } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { parseJson, readMessage, resultText } from '../../src/protocol/jsonrpc.ts'

/** A world that writes down what is done to it. */
export interface TestWorld extends World {
  readonly told: { server: string; message: Message }[]
  readonly killed: { server: string; signal: NodeJS.Signals }[]
  readonly refreshed: string[]
  readonly lost: string[]
  /** Calls that were sent to another server, and which. */
  readonly sent: { call: Call; server: string }[]
}

/** A world of HTTP servers in the legacy era where all goes well; what is done to it is written down. */
export function testWorld(script: Partial<World> = {}): TestWorld {
  const world: Pick<TestWorld, 'told' | 'killed' | 'refreshed' | 'lost' | 'sent'> = {
    told: [],
    killed: [],
    refreshed: [],
    lost: [],
    sent: [],
  }
  return {
    ...world,
    kindOf: (call) => (script.kindOf ? script.kindOf(call) : { transport: 'http', era: 'legacy' }),
    outputSchemaOf: (server, tool) => script.outputSchemaOf?.(server, tool),
    kill(server, signal) {
      world.killed.push({ server, signal })
      return script.kill?.(server, signal) ?? true
    },
    loseSession(server, caller) {
      world.lost.push(server)
      return script.loseSession?.(server, caller) ?? true
    },
    tell(server, message) {
      world.told.push({ server, message })
      script.tell?.(server, message)
    },
    refresh(server) {
      world.refreshed.push(server)
      script.refresh?.(server)
    },
    sendTo(call, server) {
      world.sent.push({ call, server })
      return script.sendTo?.(call, server)
    },
    read: script.read ?? readReply,
  }
}

/** A service that always answers a call with this result. */
export const answering =
  (result: unknown) =>
  (call: Call): Promise<Outcome> =>
    Promise.resolve(answerOf(resultText(call.id, JSON.stringify(result)), 200))

/** What a call is answered when this is the text of the reply. */
export function answerOf(text: string, status: number): Outcome {
  const value = parseJson(text) as Message['value']
  return { kind: 'answered', result: { text, value, status }, verdict: verdictOf(value) }
}

function readReply(_: Call, { status, body }: RawReply): Outcome {
  if (readMessage(body) !== undefined && status === 200) return answerOf(body, status)
  const error =
    status === 200
      ? gatewayError('bad_reply', 'the reply is no JSON-RPC message', { sent: true })
      : gatewayError('upstream_status', `HTTP ${status}`, { sent: true })
  return { kind: 'failed', error }
}
