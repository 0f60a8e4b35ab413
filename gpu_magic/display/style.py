"""How tables look in a notebook."""

from __future__ import annotations

__all__ = ["STYLE"]

# The colors are the front end's where it names them (JupyterLab and Notebook do), else colors that can be
# read on light and on dark. Everything else is inherited. "&" stands for the class three times, which
# outweighs what front ends say about every table.
STYLE = """
&{--gm-line:var(--jp-border-color2,#8884);--gm-soft:var(--jp-ui-font-color2,#888);
--gm-blue:var(--jp-brand-color1,#4b8df8);--gm-green:var(--jp-success-color1,#3fa45b);
--gm-amber:var(--jp-warn-color0,#c77f1a);font-size:13px;line-height:1.4;overflow-x:auto}
& table{border-collapse:collapse;margin:4px 0;border:0;font-variant-numeric:tabular-nums}
& tbody tr,& tbody tr:nth-child(even),& tbody tr:hover{background:none}
& th,& td{text-align:left;padding:4px 8px;border:0;white-space:nowrap;vertical-align:top;max-width:none}
& thead th,& .gm-facts th{color:var(--gm-soft);font-weight:600}
& tbody tr{border:0;border-top:1px solid var(--gm-line)}
& .gm-right{text-align:right}
& .gm-bar{display:block;height:3px;margin-top:2px;background:var(--gm-line);border-radius:2px}
& .gm-bar b{display:block;height:3px;background:var(--gm-soft);border-radius:2px}
& .gm-busy .gm-bar b{background:var(--gm-amber)}
& .gm-mine .gm-bar b{background:var(--gm-blue)}
& .gm-free .gm-used-by{color:var(--gm-green)}
& .gm-busy .gm-used-by,& .gm-note{color:var(--gm-amber)}
& .gm-mine .gm-used-by{color:var(--gm-blue)}
& .gm-problem td{color:var(--gm-soft)}
& .gm-here .gm-visible-as{color:var(--gm-blue);font-weight:700}
& .gm-hidden .gm-visible-as{color:var(--gm-soft)}
& .gm-chosen td:first-child{box-shadow:inset 3px 0 var(--gm-blue)}
& .gm-used-by{white-space:normal;min-width:24ch}
& .gm-facts td{white-space:normal}
& .gm-host th{color:var(--gm-soft);font-weight:600;padding-top:10px}
& .gm-facts tr{border:0}& .gm-facts th,& .gm-facts td{padding:1px 8px}
& p{margin:2px 8px}& .gm-title{color:var(--gm-soft)}
""".replace("\n", "").replace("&", ".gpu-magic.gpu-magic.gpu-magic")
