import type { Signal } from '../mesh/cancel.ts'
import { newRecord, type Call, type Caller, type Channel, type Message } from '../mesh/call.ts'
import { requestText } from '../protocol/jsonrpc.ts'

/** The gateway itself as a caller: messages for it are dropped. */
const nobody: Caller = {
  id: '',
  initializeParams: {},
  listening: false,
  era: 'legacy',
  receive: () => undefined,
}
const nowhere: Channel = { open: () => undefined, pause: () => undefined, send: () => undefined }

/** A request that an upstream makes of its own accord. */
export function ownCall(
  server: string,
  method: string,
  params: Readonly<Record<string, unknown>>,
  signal: Signal,
): Call {
  const text = requestText(0, method, params)
  const message: Message = { text, value: { jsonrpc: '2.0', id: 0, method, params } }
  return {
    server,
    method,
    tool: undefined,
    id: 0,
    message,
    headers: undefined,
    inbound: {},
    tenant: '',
    countsAs: '',
    caller: nobody,
    channel: nowhere,
    signal,
    deadline: undefined,
    attempt: 1,
    replica: undefined,
    record: newRecord(0),
  }
}
