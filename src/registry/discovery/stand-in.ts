import type { Message } from '../../mesh/call.ts'
import { errorText, METHOD_NOT_FOUND, resultText } from '../../protocol/jsonrpc.ts'

/** The answer to a server that asks something where there is no agent to ask, under any id. */
export function standIn({ value: { method } }: Message): string {
  switch (method) {
    case 'ping':
      return resultText(0, '{}')
    case 'roots/list':
      return resultText(0, '{"roots":[]}')
    default:
      return errorText(null, METHOD_NOT_FOUND, 'there is no agent behind this session, only a gateway')
  }
}
