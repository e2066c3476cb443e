"""The page and the headers that keep it to itself."""

from __future__ import annotations

import httpx


async def test_the_page_is_served_with_a_strict_policy(start, tmp_path):
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("<!doctype html><title>Consilium</title>")
    (dist / "assets" / "main.js").write_text("export {}")
    server = await start(web_client=dist)
    async with httpx.AsyncClient(base_url=server.base) as http:
        page, script = await http.get("/"), await http.get("/assets/main.js")
        assert (page.status_code, script.status_code) == (200, 200)
        policy = page.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "img-src 'self' blob:" in policy and "connect-src 'self' ws: wss:" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert (await http.get("/../../etc/passwd")).status_code == 404
        assert (await http.get("/..%2f..%2fetc%2fpasswd")).status_code == 404


async def test_a_page_that_is_not_built_says_how_to_build_it(start, tmp_path):
    server = await start(web_client=tmp_path / "nothing")
    async with httpx.AsyncClient(base_url=server.base) as http:
        answer = await http.get("/")
    assert answer.status_code == 503 and "npm run build" in answer.text
