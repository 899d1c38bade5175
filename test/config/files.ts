import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import assert from 'node:assert/strict'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'

/** Makes a folder with `files` for one test. */
export async function folder(t: TestContext, files: Record<string, string> = {}): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'breakwater-config-'))
  t.after(() => rm(path, { recursive: true, force: true }))
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text)
  return path
}

/** Loads `main.yaml`, or the only file. */
export async function load(
  t: TestContext,
  files: Record<string, string> | string,
  env: Record<string, string> = {},
) {
  const all = typeof files === 'string' ? { 'main.yaml': files } : files
  const path = await folder(t, all)
  const main = Object.keys(all)[0] ?? ''
  const loaded = await loadConfig(join(path, main), env)
  const lines = (loaded.ok ? loaded.warnings : loaded.errors).map((issue) =>
    formatIssue(issue).replaceAll(`${path}/`, ''),
  )
  return { loaded, lines, path }
}

/** Loads a config that must be valid. */
export async function loadGood(
  t: TestContext,
  files: Record<string, string> | string,
  env: Record<string, string> = {},
) {
  const { loaded, lines } = await load(t, files, env)
  assert.ok(loaded.ok, lines.join('\n'))
  return { config: loaded.config, warnings: lines, hash: loaded.hash, files: [...loaded.files.keys()] }
}

/** Loads a config that must be invalid. Returns its findings, without the file's name if there is one file. */
export async function errorsOf(
  t: TestContext,
  files: Record<string, string> | string,
  env: Record<string, string> = {},
) {
  const { loaded, lines } = await load(t, files, env)
  assert.equal(loaded.ok, false)
  return typeof files === 'string' ? lines.map((line) => line.replace('main.yaml:', '')) : lines
}
