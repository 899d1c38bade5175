import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { root, runtimePackages } from './packages.ts'

interface Component {
  readonly 'bom-ref': string
  readonly name: string
  readonly version: string
  readonly purl: string
  readonly externalReferences: readonly { readonly type: string; readonly url: string }[]
}

/** The parts of a CycloneDX bill of materials read here. */
export interface Sbom {
  readonly bomFormat: string
  readonly metadata: { readonly component: Component }
  readonly components: readonly Component[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

/**
 * Returns the packages installed with Breakwater, as npm reads the lockfile. With `--omit dev` npm also leaves out
 * packages that development needs too (100 of 234 packages, the MCP SDK among them). So this function takes all
 * packages, and leaves out packages that the lockfile marks as development.
 */
export async function sbom(): Promise<Sbom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only']
  const { stdout } = await promisify(execFile)('npm', args, { cwd: root, maxBuffer: 64 * 1024 ** 2 })
  const all = JSON.parse(stdout) as Sbom
  const { name } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { name: string }
  const packages = new Set((await runtimePackages()).map(({ name, version }) => `${name}@${version}`))
  const components = all.components
    .filter(({ name, version }) => packages.has(`${name}@${version}`))
    // Drops the download place, which says nothing about the package.
    .map((component) => ({
      ...component,
      externalReferences: component.externalReferences.filter(({ type }) => type !== 'distribution'),
    }))
  // npm names the project after its folder.
  const own = { ...all.metadata.component, name }
  const refs = new Set([own, ...components].map((component) => component['bom-ref']))
  const dependencies = all.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) }))
  return { ...all, metadata: { ...all.metadata, component: own }, components, dependencies }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const bom = await sbom()
  await writeFile(join(root, 'sbom.cdx.json'), `${JSON.stringify(bom, undefined, 2)}\n`)
  console.log(`sbom.cdx.json: ${bom.components.length} components`)
}
