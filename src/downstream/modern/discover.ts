import type { Message, RequestId } from '../../mesh/call.ts'
import { askedLimitMs } from '../../policies/deadline/asked.ts'
import { parseExactly } from '../../protocol/json-parse.ts'
import { isObject, resultText } from '../../protocol/jsonrpc.ts'
import { SERVER_INFO_KEY } from '../../protocol/modern.ts'
import { LATEST_LEGACY } from '../../protocol/versions.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import { sendJson } from '../post-reply.ts'
import { gatewayErrorText } from '../respond.ts'
import type { Visit } from '../visit.ts'
import { supportedVersions } from './envelope.ts'
import type { PooledCaller } from './pool.ts'

/** Takes a `server/discover`: what a client of the legacy era gets to know by `initialize`, in the words of this one. */
export async function discover(
  { front, headers, response }: Visit,
  id: RequestId,
  message: Message,
  caller: PooledCaller,
  generation: GatewayGeneration,
): Promise<void> {
  const limitMs = askedLimitMs({ inbound: headers, message })
  const welcome = await front.welcome(generation, caller, LATEST_LEGACY, limitMs)
  const text =
    'error' in welcome
      ? gatewayErrorText(id, welcome.error, { server: front.server })
      : resultText(id, discovered(welcome.text))
  sendJson(response, 200, text)
}

function discovered(greeting: string): string {
  const { capabilities, instructions, serverInfo } = parseExactly(greeting) as Record<string, unknown>
  return JSON.stringify({
    resultType: 'complete',
    supportedVersions,
    capabilities: modernCapabilities(capabilities),
    ...(instructions === undefined ? {} : { instructions }),
    ttlMs: 0,
    cacheScope: 'private',
    _meta: { [SERVER_INFO_KEY]: serverInfo },
  })
}

/** Tasks of the legacy era are not those of this one. */
function modernCapabilities(capabilities: unknown): unknown {
  if (!isObject(capabilities)) return {}
  const { tasks: _, ...rest } = capabilities
  return rest
}
