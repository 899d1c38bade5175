import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { stringify } from 'yaml'
import { bound } from '../../test/support/bound.ts'
import { deployFolder } from '../paths.ts'
import { PrometheusApi } from './prometheus-api.ts'

export const HOW_TO_INSTALL = 'deploy/check/install-prometheus.sh installs it on Debian and Ubuntu'

export function isInstalled(): boolean {
  return ['prometheus', 'promtool'].every((name) => spawnSync(name, ['--version']).status === 0)
}

/** Time between two scrapes, and between two evaluations of rules, in seconds. */
export const INTERVAL_S = 1

/** A private Prometheus that scrapes a gateway and evaluates the committed rules each second. */
export class Prometheus extends PrometheusApi {
  readonly #child: ChildProcess
  #said = ''

  private constructor(child: ChildProcess, url: string) {
    super(url)
    this.#child = child
    child.stderr?.on('data', (chunk: Buffer) => (this.#said += chunk.toString()))
  }

  /** Resolves when ready; `target` is the host and port of a control plane, `labels` go to its series. */
  static async start(
    target: string,
    folder: string,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<Prometheus> {
    const file = join(folder, 'prometheus.yaml')
    const data = join(folder, 'data')
    const interval = `${INTERVAL_S}s`
    await mkdir(data, { recursive: true })
    await writeFile(
      file,
      stringify({
        global: { scrape_interval: interval, scrape_timeout: interval, evaluation_interval: interval },
        rule_files: [`${deployFolder}prometheus/rules/*.yaml`],
        scrape_configs: [{ job_name: 'breakwater', static_configs: [{ targets: [target], labels }] }],
      }),
    )
    const address = `127.0.0.1:${await freePort()}`
    const child = spawn(
      'prometheus',
      [
        `--config.file=${file}`,
        `--storage.tsdb.path=${data}`,
        `--web.listen-address=${address}`,
        '--enable-feature=exemplar-storage',
        '--log.level=warn',
      ],
      { stdio: ['ignore', 'ignore', 'pipe'], env: bound() },
    )
    const prometheus = new Prometheus(child, `http://${address}`)
    await prometheus.#ready()
    return prometheus
  }

  async #ready(): Promise<void> {
    for (let tries = 0; tries < 100; tries++) {
      if (this.#child.exitCode !== null) throw new Error(`prometheus ended: ${this.#said}`)
      const up = await fetch(`${this.url}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      )
      if (up) return
      await setTimeout(100)
    }
    throw new Error(`prometheus is not ready after 10 s: ${this.#said}`)
  }

  /** Ends Prometheus. Resolves when the process has exited. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGTERM')
    const late = setTimeout(5_000, undefined, { ref: false }).then(() => this.#child.kill('SIGKILL'))
    await Promise.race([gone, late.then(() => gone)])
  }
}

async function freePort(): Promise<number> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}
