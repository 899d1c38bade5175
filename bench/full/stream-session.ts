import assert from 'node:assert/strict'
import type { Dispatcher, Pool } from 'undici'
import { exchange } from '../exchange.ts'
import { checkEcho, checkListed, clientInfo, LEGACY_VERSION, type Answer, type Caller } from '../session.ts'

/** A caller over the older transport, HTTP+SSE: posts to an address named by a stream; answers arrive on the stream. */
export class StreamSession implements Caller {
  readonly #pool: Pool
  readonly #waiting = new Map<unknown, (answer: Answer) => void>()
  #toEndpoint: (path: string) => void = () => {}
  readonly #endpoint = new Promise<string>((resolve) => (this.#toEndpoint = resolve))
  #text = ''
  #controller: Dispatcher.DispatchController | undefined
  #fail: (error: Error) => void = () => {}
  readonly #failed = new Promise<never>((_, reject) => (this.#fail = reject))

  private constructor(pool: Pool, path: string) {
    this.#pool = pool
    this.#failed.catch(() => {})
    pool.dispatch(
      {
        path,
        method: 'GET',
        headers: { accept: 'text/event-stream' },
        headersTimeout: 10_000,
        bodyTimeout: 0,
      },
      {
        onRequestStart: (controller) => void (this.#controller = controller),
        onResponseStart: (_controller, status) => {
          if (status !== 200) this.#fail(new Error(`${path}: status ${status}`))
        },
        onResponseData: (_controller, chunk) => this.#read(String(chunk)),
        onResponseEnd: () => this.#fail(new Error(`${path}: the stream has ended`)),
        onResponseError: (_controller, error) => this.#fail(error),
      },
    )
  }

  static async open(pool: Pool, path: string, tool: string): Promise<StreamSession> {
    const session = new StreamSession(pool, path)
    const params = { protocolVersion: LEGACY_VERSION, capabilities: {}, clientInfo }
    const { result } = await session.#ask('hello', 'initialize', params)
    assert(result !== undefined, 'initialize: no result')
    await session.#post({ jsonrpc: '2.0', method: 'notifications/initialized' })
    checkListed(await session.#ask('list', 'tools/list', {}), path, tool)
    return session
  }

  async call(id: number, tool: string, text: string, fill: string): Promise<void> {
    checkEcho(await this.#ask(id, 'tools/call', { name: tool, arguments: { text } }), id, text + fill)
  }

  close(): Promise<void> {
    this.#controller?.abort(new Error('closed'))
    return Promise.resolve()
  }

  async #ask(id: string | number, method: string, params: object): Promise<Answer> {
    const answer = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve))
    await this.#post({ jsonrpc: '2.0', id, method, params })
    return Promise.race([answer, this.#failed])
  }

  async #post(message: object): Promise<void> {
    const path = await Promise.race([this.#endpoint, this.#failed])
    const headers = { 'content-type': 'application/json' }
    const { status, body } = await exchange(this.#pool, {
      path,
      method: 'POST',
      headers,
      body: JSON.stringify(message),
    })
    assert(status === 202 || status === 200, `${path}: status ${status}: ${body.slice(0, 200)}`)
  }

  #read(chunk: string): void {
    const events = (this.#text + chunk).split(/\r?\n\r?\n/)
    this.#text = events.pop() ?? ''
    for (const event of events) {
      const data = /^data: ?(.*)$/m.exec(event)?.[1]
      if (data === undefined) continue
      if (/^event: ?endpoint$/m.test(event)) {
        const { pathname, search } = new URL(data, 'http://localhost')
        this.#toEndpoint(pathname + search)
        continue
      }
      const answer = JSON.parse(data) as Answer
      this.#waiting.get(answer.id)?.(answer)
      this.#waiting.delete(answer.id)
    }
  }
}
