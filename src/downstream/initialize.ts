import type { Message } from '../mesh/call.ts'
import type { GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { askedLimitMs } from '../policies/deadline/asked.ts'
import { INVALID_REQUEST, isRequestId, paramsOf, resultText, type RequestId } from '../protocol/jsonrpc.ts'
import { negotiate } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { principalOf } from './credentials.ts'
import { sendJson } from './post-reply.ts'
import { refusal, refuse } from './refusal.ts'
import { gatewayErrorText } from './respond.ts'
import type { Sessions } from './sessions.ts'
import type { Visit } from './visit.ts'

/** Takes the `initialize` of a client: a session begins, unless there is no room or its server does not answer. */
export async function initialize(
  visit: Visit,
  message: Message,
  sessions: Sessions,
  live: Live<GatewayGeneration>,
): Promise<void> {
  const { front, headers, client, response } = visit
  const { id } = message.value
  if (!isRequestId(id)) {
    return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Request: initialize needs an id'))
  }
  const full = sessions.refusal(client, principalOf(headers))
  if (full !== undefined) return busy(visit, id, full)
  const said = paramsOf(message.value)
  const version = negotiate(said.protocolVersion)
  const hello = { ...said, protocolVersion: version }
  const limitMs = askedLimitMs({ inbound: headers, message })
  const session = sessions.draft({ front, headers, client, hello, version })
  const welcome = await front.welcome(live.current, session, version, limitMs)
  if ('error' in welcome) {
    await sessions.close(session)
    if (welcome.error.reason === 'overloaded') return busy(visit, id, welcome.error)
    return sendJson(response, 200, gatewayErrorText(id, welcome.error, { server: front.server }))
  }
  sessions.add(session)
  sendJson(response, 200, resultText(id, welcome.text), { 'mcp-session-id': session.id })
}

/** There is no room for one more session, here or at its server. */
function busy({ response, front }: Visit, id: RequestId, error: GatewayError): void {
  const { retryAfterMs = 5_000 } = error
  const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }
  sendJson(response, 503, gatewayErrorText(id, error, { server: front.server }), headers)
}
