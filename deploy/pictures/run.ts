import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { HOW_TO_INSTALL, isInstalled } from '../check/prometheus.ts'
import { picturesFolder } from '../paths.ts'
import type { Answers } from './answers.ts'
import { sheet } from './sheet.ts'
import { watch } from './watch.ts'

async function draw(all: readonly Answers[]): Promise<void> {
  await mkdir(picturesFolder, { recursive: true })
  for (const file of await readdir(picturesFolder)) await rm(join(picturesFolder, file))
  for (const answers of all) {
    const picture = sheet(answers)
    await writeFile(join(picturesFolder, `${answers.uid}.svg`), picture)
    console.log(`docs/pictures/${answers.uid}.svg: ${Math.round(Buffer.byteLength(picture) / 1_024)} KiB`)
    for (const { panel, series } of answers.panels)
      if (panel.type !== 'row' && series.length === 0) console.log(`  no data in this run: ${panel.title}`)
  }
}

if (isInstalled()) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-pictures-'))
  try {
    await draw(await watch(folder))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
} else {
  console.error(`pictures need a Prometheus; ${HOW_TO_INSTALL}`)
  process.exitCode = 1
}
