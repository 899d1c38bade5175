import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Program, type ProgramOptions } from '../../test/e2e/support/program.ts'
import { until } from '../../test/support/until.ts'

const main = fileURLToPath(new URL('../../dist/main.js', import.meta.url))

/** A running gateway: its base URLs, and the token of its control plane. */
export interface Running {
  readonly data: string
  readonly control: string
  readonly token: string
}

/** Blocks of a config, without addresses. */
export interface Config {
  readonly gateway?: object
  readonly [block: string]: unknown
}

/** Starts a gateway with its config in `folder`, and waits until `server` is up. The tests' helpers end the gateway. */
export async function startGateway(
  folder: string,
  config: Config,
  server: string,
  options: ProgramOptions = {},
): Promise<Running> {
  await mkdir(folder, { recursive: true })
  const file = join(folder, 'gateway.yaml')
  const gateway = { listen: '127.0.0.1:0', control: '127.0.0.1:0', ...config.gateway }
  await writeFile(file, JSON.stringify({ ...config, gateway }))
  const program = new Program([main, 'start', '--config', file], {
    ...options,
    env: { XDG_RUNTIME_DIR: folder, ...options.env },
  })
  const { tokenFile, ...addresses } = await program.line('the gateway listens', (line) =>
    line.includes('"listening"')
      ? (JSON.parse(line) as { data: string; control: string; tokenFile: string })
      : undefined,
  )
  await until(`${server} is up`, async () => {
    const response = await fetch(`${addresses.control}/admin/servers/${server}`)
    return ((await response.json()) as { state: string }).state === 'up'
  })
  return { ...addresses, token: (await readFile(tokenFile, 'utf8')).trim() }
}
