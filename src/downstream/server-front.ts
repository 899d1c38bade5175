import type { Caller, Message } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import { elements, locate, replaceAt } from '../protocol/json-span.ts'
import { errorText, INVALID_PARAMS, isObject } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { kindOfList, kinds, type ListKind } from '../registry/kinds.ts'
import { faultOfName } from '../registry/names.ts'
import { isAboutUnlisted } from '../registry/references.ts'
import type { Server } from '../registry/server.ts'
import { callTo, type Front, type Inquiry, type Welcome } from './front.ts'
import { respond, type Response } from './respond.ts'

/** One server as it is: names untouched, every message passed on. */
export class ServerFront implements Front {
  readonly server: string

  constructor(server: string) {
    this.server = server
  }

  async welcome(
    generation: GatewayGeneration,
    caller: Caller,
    version: string,
    limitMs?: Millis,
  ): Promise<Welcome> {
    try {
      const { link } = await this.#find(generation).converse(caller, limitMs)
      const { text, value } = link.greeting
      const newer = typeof value.protocolVersion === 'string' && value.protocolVersion > version
      return { text: newer ? replaceAt(text, ['protocolVersion'], version) : text }
    } catch (error) {
      return { error: error as GatewayError }
    }
  }

  request(generation: GatewayGeneration, inquiry: Inquiry): Promise<Response> {
    const server = this.#find(generation)
    const call = callTo(server, inquiry.message, inquiry)
    const { method, tool } = call
    if (tool !== undefined && !server.allows(tool)) {
      return Promise.resolve({
        text: errorText(call.id, INVALID_PARAMS, `Unknown tool: ${tool.slice(0, 200)}`),
        status: 200,
      })
    }
    if (isAboutUnlisted(method, call.message)) {
      const subject = method === 'prompts/get' ? 'prompt' : 'reference'
      return Promise.resolve({ text: errorText(call.id, INVALID_PARAMS, `Unknown ${subject}`), status: 200 })
    }
    const service = generation.mesh.serviceFor(server.name, method, tool)
    return service(call).then((outcome) => {
      const response = respond(call.id, outcome, call, server.config.deliver)
      const kind = outcome.kind === 'answered' ? kindOfList(method) : undefined
      if (kind === undefined || outcome.kind !== 'answered') return response
      return onlyAllowed(server, kind, response, outcome.result.value)
    })
  }

  notify(generation: GatewayGeneration, caller: Caller, message: Message): void {
    for (const link of this.#find(generation).links.all(caller)) link.post(message.text).catch(ignore)
  }

  inbound(_: GatewayGeneration, __: string, message: Message): Message {
    return message
  }

  #find(generation: GatewayGeneration): Server {
    const server = generation.servers.get(this.server)
    if (server === undefined) throw new Error(`server ${this.server} left the config while it was in use`)
    return server
  }
}

/** A list without what agents may not see of it; the same bytes when all may be seen. */
function onlyAllowed(server: Server, kind: ListKind, response: Response, value: Message['value']): Response {
  const list = isObject(value.result) ? value.result[kind] : undefined
  if (!Array.isArray(list)) return response
  const allowed = list.map((entry: unknown) => {
    const name = isObject(entry) ? entry[kinds[kind].key] : undefined
    if (typeof name !== 'string') return false
    return kind === 'tools' ? server.allows(name) : faultOfName(kind, name) === undefined
  })
  const span = locate(response.text, ['result', kind])
  if (span === undefined || allowed.every(Boolean)) return response
  const kept = [...elements(response.text, span.start)]
    .filter((_, index) => allowed[index])
    .map(({ start, end }) => response.text.slice(start, end))
  return {
    ...response,
    text: `${response.text.slice(0, span.start)}[${kept.join()}]${response.text.slice(span.end)}`,
  }
}

/** A notification has no answer, so nobody could be told of its loss. */
function ignore(): void {}
