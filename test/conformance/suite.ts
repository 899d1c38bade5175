import { readdir, readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parse } from 'yaml'
import { start } from './children.ts'

/** A scenario takes less than a second, unless it hangs. */
const SCENARIO_LIMIT_MS = 15_000
const SUITE_LIMIT_MS = 600_000

/** A finding of the suite. INFO and SKIPPED give no verdict. */
export interface Check {
  readonly id: string
  readonly status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'INFO' | 'SKIPPED'
  readonly errorMessage?: string
}

/** Findings of the suite, by scenario. */
export type Results = ReadonlyMap<string, readonly Check[]>

/** The suite and its Node, as `.ci/tools.sh` installs both. */
export interface Suite {
  /** Returns the scenarios that a server must pass for `requirements`; other scenarios run unscored. */
  scored(requirements: string): Promise<ReadonlySet<string>>
  /** Runs all scenarios of `requirements` against `url` and leaves findings in `folder`. */
  run(url: string, requirements: string, folder: string): Promise<Results>
}

/** `node`: path of the Node 24 binary in `node_modules/.bin`. */
export function findSuite(node: string): Suite {
  const home = join(dirname(node), '../@modelcontextprotocol/conformance')
  return {
    async scored(requirements) {
      const text = await readFile(join(home, 'requirements', `${requirements}.yaml`), 'utf8')
      return new Set((parse(text) as { server: readonly string[] }).server)
    },
    async run(url, requirements, folder) {
      const script = join(home, 'dist/index.js')
      const options = ['--url', url, '--requirements', requirements, '--output-dir', folder]
      const limit = ['--timeout', String(SCENARIO_LIMIT_MS)]
      await start(node, [script, 'server', ...options, ...limit], `${folder}.log`).ended(SUITE_LIMIT_MS)
      return readResults(folder)
    },
  }
}

/** Reads `server-{scenario}-{time}/checks.json` of every finished scenario. */
async function readResults(folder: string): Promise<Results> {
  const results = new Map<string, readonly Check[]>()
  for (const path of (await readdir(folder, { recursive: true })).toSorted()) {
    const scenario = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z\/checks\.json$/.exec(path)?.[1]
    if (scenario === undefined) continue
    results.set(scenario, JSON.parse(await readFile(join(folder, path), 'utf8')) as readonly Check[])
  }
  return results
}
