"""The doctor finds what is in the way and says what to type."""

from server.cli_doctor import examine


def findings(**environment):
    return {finding.what: finding for finding in examine(environment)}


def test_a_missing_model_is_a_fault_with_its_command(tmp_path):
    found = findings(CONSILIUM_MODELS=str(tmp_path))["smollm2-135m"]
    assert found.level == "fault"
    assert "consilium models pull" in found.detail


def test_a_setting_that_cannot_work_is_a_fault(tmp_path):
    found = findings(CONSILIUM_MODELS=str(tmp_path), CONSILIUM_PORT="many")["settings"]
    assert found.level == "fault"
    assert "CONSILIUM_PORT" in found.detail


def test_an_open_server_is_told(tmp_path):
    assert findings(CONSILIUM_MODELS=str(tmp_path))["settings"].level == "note"


def test_a_port_that_is_taken_is_told(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = findings(CONSILIUM_MODELS=str(tmp_path), CONSILIUM_PORT=port)["address"]
    assert found.level == "note"
    assert "running already" in found.detail
