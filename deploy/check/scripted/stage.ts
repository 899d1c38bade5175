import { join } from 'node:path'
import { until } from '../../../test/support/until.ts'
import { startGateway, type Running } from '../gateway.ts'
import { ScriptedServer } from './server.ts'

/** Name of the server in the gateway's config, and thus in its metrics. */
export const SERVER = 'scripted'

/**
 * Policies that act on history are off, so that each call's fate follows its script. Only `stock` is retried, and only
 * `slow` has a short timeout: on a busy machine no other call may time out.
 */
const policies = {
  defaults: { breaker: false, retry: false, arguments: { check: 'enforce' } },
  overrides: [
    {
      match: { tool: 'stock' },
      effect: 'read_only',
      retry: { maxRetries: 1, base: 1, cap: 1, budget: { floor: 1_000, leastConcurrent: 1_000 } },
    },
    { match: { tool: 'slow' }, attemptTimeout: { timeout: 100 } },
  ],
}

/** A separate gateway before the scripted server. */
export class Stage {
  readonly server: ScriptedServer
  readonly #addresses: Running

  private constructor(server: ScriptedServer, addresses: Running) {
    this.server = server
    this.#addresses = addresses
  }

  static async start(folder: string): Promise<Stage> {
    const server = await ScriptedServer.start()
    const telemetry = { intents: { idle: '1s' }, metrics: { maxAge: 0 } }
    // The index of runs stays empty.
    const gateway = { stateDir: join(folder, 'state') }
    const config = { gateway, mcpServers: { [SERVER]: { url: server.url } }, policies, telemetry }
    return new Stage(server, await startGateway(folder, config, SERVER))
  }

  /** Endpoint of the server. */
  get mcp(): string {
    return `${this.#addresses.data}/mcp/${SERVER}`
  }

  /** Base URL of the control plane. */
  get control(): string {
    return this.#addresses.control
  }

  /** Resolves when no call is under way and no task is open: nothing more will be counted then. */
  async quiet(): Promise<void> {
    await until('all calls are over, and all tasks', async () => {
      const text = await (await fetch(`${this.control}/metrics`)).text()
      return [/^breakwater_inflight\{[^}]*\} 0$/m, /^breakwater_intents_open 0$/m].every((idle) =>
        idle.test(text),
      )
    })
  }
}
